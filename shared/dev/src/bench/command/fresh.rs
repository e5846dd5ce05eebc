//! The batch statement on tables that were never analysed, and on the same tables once they were: the plans must not hang
//! on statistics.

use std::time::Instant;

use anyhow::Result;
use likewise_devstack::{Process, TestStack};

use super::{BATCH, USERS, VIDEOS};
use crate::bench::load::rate;
use crate::bench::mix::Mix;
use crate::bench::sql::{Batch, Writer, connect, relation_schema};
use crate::bench::{Bench, Figures};
use crate::site::step;

/// Batches of one sample.
const BATCHES: usize = 120;
const BATCHES_QUICK: usize = 20;

/// Every round on a database of its own.
pub(super) async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    step("writing to fresh tables, and to analysed ones");
    let batches = if bench.is_quick { BATCHES_QUICK } else { BATCHES };
    for _ in 0..bench.rounds() {
        let config = TestStack::of(&bench.site.stack).config().await;
        // Its start makes the tables.
        let mut maker = Process::run(bench.site.program(), &config, &super::PAUSED).await?;
        maker.kill().await;
        let schema = connect(&config.database, &relation_schema(0)).await?;
        // Nothing may analyse them behind our back.
        for table in ["like_relation", "account_state"] {
            schema.batch_execute(&format!("alter table {table} set (autovacuum_enabled = false)")).await?;
        }
        let writer = Writer::open(&config.database, 0).await?;
        let mut mix = Mix::new(USERS, VIDEOS);
        figures.sample("command.sql_fresh_per_s", write(&writer, &mut mix, batches).await?);
        schema.batch_execute("analyze").await?;
        let writer = Writer::open(&config.database, 0).await?;
        figures.sample("command.sql_analysed_per_s", write(&writer, &mut mix, batches).await?);
    }
    Ok(())
}

async fn write(writer: &Writer, mix: &mut Mix, batches: usize) -> Result<f64> {
    let batches: Vec<Batch> = (0..batches).map(|_| Batch::of(&mix.draw(BATCH), "fresh-")).collect();
    let begin = Instant::now();
    for batch in &batches {
        writer.apply(batch).await?;
    }
    Ok(rate(batches.len() * BATCH, begin.elapsed()))
}
