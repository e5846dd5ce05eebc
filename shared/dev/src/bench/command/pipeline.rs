//! Streams while everything behind them works too: publishing, counting, lists, display.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use likewise_proto::reconciliation::v1::GetLagBoardRequest;
use likewise_proto::reconciliation::v1::operations_service_client::OperationsServiceClient;
use tonic::transport::Channel;

use super::{STREAMED, USERS};
use crate::bench::door::{Door, Sent};
use crate::bench::mix::Mix;
use crate::bench::{Bench, Figures, gateway};
use crate::site::{Person, step};

/// Commands of one sample.
const COMMANDS: usize = 60_000;
const COMMANDS_QUICK: usize = 6_000;
/// How long the projections may take to catch up.
const BOUND: Duration = Duration::from_secs(300);

/// Sends while the site's process does everything, and lets it catch up after each sample.
pub(super) async fn measure(bench: &Bench, figures: &mut Figures, mix: &mut Mix) -> Result<()> {
    step("sending with the whole pipeline on");
    let door = Door::to(&bench.site.process, bench.site.keys(), USERS)?;
    let channel = bench.site.channel()?;
    let viewer = bench.site.viewer(&channel);
    let commands = if bench.is_quick { COMMANDS_QUICK } else { COMMANDS };
    let (mut behind_most, mut slowest) = (0, Duration::ZERO);
    gateway::send(&door, sent(mix, COMMANDS_QUICK), STREAMED).await?;
    caught_up(&viewer, &channel).await?;
    for _ in 0..bench.rounds() {
        let load = gateway::send(&door, sent(mix, commands), STREAMED).await?;
        if let Some(first) = &load.first_wrong {
            bail!("{} commands were answered otherwise than expected: {first}", load.wrong);
        }
        behind_most = behind_most.max(behind(&viewer, &channel).await?);
        let begin = Instant::now();
        caught_up(&viewer, &channel).await?;
        slowest = slowest.max(begin.elapsed());
        figures.sample("command.pipeline_per_s", load.per_s());
        figures.sample("command.pipeline_drain_s", begin.elapsed().as_secs_f64());
    }
    figures.note(format!(
        "pipeline: {commands} commands a sample; when the last was answered the slowest projection was at most \
         {behind_most} changes behind, and caught up within {:.1} s",
        slowest.as_secs_f64()
    ));
    Ok(())
}

fn sent(mix: &mut Mix, count: usize) -> Vec<Sent> {
    mix.draw(count).iter().map(Sent::of).collect()
}

async fn caught_up(viewer: &Person, channel: &Channel) -> Result<()> {
    let begin = Instant::now();
    while behind(viewer, channel).await? > 0 {
        if begin.elapsed() > BOUND {
            bail!("the projections did not catch up within {BOUND:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Changes between what is committed and what the slowest projection of relations has consumed.
async fn behind(viewer: &Person, channel: &Channel) -> Result<u64> {
    let request = viewer.request(GetLagBoardRequest {});
    let board = OperationsServiceClient::new(channel.clone()).get_lag_board(request).await;
    let board = board.context("asking for the lag board")?.into_inner();
    let lanes = board.lanes.iter().filter(|lane| lane.lane.starts_with("rel-"));
    let lags = lanes.map(|lane| {
        let slowest = lane.projections.iter().map(|row| row.next_offset).min().unwrap_or_default();
        (lane.committed_seq() + 1).saturating_sub(slowest)
    });
    Ok(lags.sum())
}
