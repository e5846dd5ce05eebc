//! Partitions of one shard: made ahead, dropped past retention. Each pass looks, plans and acts anew; killed anywhere, the
//! next one goes on. Several processes may do it at once, the shard's lock puts them in a row.

use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;

use super::shards::Shard;
use crate::config::Settings;
use crate::metrics::WriterMetrics;
use crate::partitions::{SeqRange, Week, plan_ranges, plan_weeks};
use crate::store;
use crate::store::partitions::{Changes, Found, change, find_in};
use crate::store::retention::{drop_unneeded, trim_evidence};

/// Pause after a pass that failed, for example because a reader was in the way.
const RETRY: Duration = Duration::from_secs(5);

/// What a shard's partitions are kept by.
#[derive(Clone)]
pub(crate) struct Keeping {
    pub(crate) settings: Arc<Settings>,
    /// How long a stream keeps its messages.
    pub(crate) stream_age: time::Duration,
    pub(crate) metrics: WriterMetrics,
}

/// Looks after a shard until the process stops.
pub(crate) async fn run(shard: Arc<Shard>, keeping: Keeping, stop: CancellationToken) {
    let settings = &keeping.settings;
    loop {
        let pause = match pass(&shard, &keeping).await {
            Ok(()) => settings.maintenance_interval(),
            Err(error) => {
                tracing::warn!(shard = shard.number, error = error.chain(), "partitions were not looked after");
                RETRY.min(settings.maintenance_interval())
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = shard.maintain.notified() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One pass. How far partitions reach is told before they are changed too: it has to be seen that they do not.
async fn pass(shard: &Shard, keeping: &Keeping) -> Result<(), store::Error> {
    let Keeping { settings, stream_age, metrics } = keeping;
    let found = find_in(&shard.pool).await?;
    tell(&found, shard, metrics);
    let changes = plan(&found, settings);
    if !changes.is_empty() {
        apply(shard, &changes, metrics).await?;
    }
    if settings.drop_outbox { drop_outbox(shard, *stream_age).await } else { Ok(()) }
}

async fn apply(shard: &Shard, changes: &Changes, metrics: &WriterMetrics) -> Result<(), store::Error> {
    change(&shard.pool, shard.number, changes).await?;
    let names = |weeks: &[Week]| weeks.iter().map(|week| week.name()).collect::<Vec<_>>().join(" ");
    tracing::info!(
        shard = shard.number,
        made = names(&changes.make_weeks),
        dropped = names(&changes.drop_weeks),
        ranges = changes.make_ranges.len(),
        "partitions changed"
    );
    tell(&find_in(&shard.pool).await?, shard, metrics);
    Ok(())
}

async fn drop_outbox(shard: &Shard, stream_age: time::Duration) -> Result<(), store::Error> {
    let dropped = drop_unneeded(&shard.pool, shard.number, stream_age).await?;
    if !dropped.is_empty() {
        let names = dropped.iter().map(|range| range.name()).collect::<Vec<_>>().join(" ");
        tracing::info!(shard = shard.number, dropped = names, "nobody needs these parts of the outbox any more");
    }
    trim_evidence(&shard.pool).await
}

fn tell(found: &Found, shard: &Shard, metrics: &WriterMetrics) {
    let (days, numbers) = horizon(found);
    metrics.horizon(shard.number, days, numbers);
}

fn plan(found: &Found, settings: &Settings) -> Changes {
    let retention = time::Duration::days(settings.operation_retention_days.into());
    let weeks = plan_weeks(&found.weeks, found.now, retention, settings.operation_weeks_ahead);
    let make_ranges =
        plan_ranges(&found.ranges, found.last_seq, settings.outbox_partition_rows, settings.outbox_partitions_ahead);
    Changes { make_weeks: weeks.make, make_ranges, drop_weeks: weeks.drop }
}

/// Days until the last week ends, and numbers until the last range does.
fn horizon(found: &Found) -> (f64, f64) {
    let end = found.weeks.iter().map(|week| week.end()).max().unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let last: Option<&SeqRange> = found.ranges.iter().max();
    let numbers = last.map_or(0, |range| range.to.saturating_sub(found.last_seq + 1));
    #[allow(clippy::cast_precision_loss)]
    let numbers = numbers as f64;
    ((end - found.now).as_seconds_f64() / 86_400.0, numbers)
}
