//! Attaching: the stream is opened and its end compared with the outbox, before anything is published.

use async_nats::jetstream;

use super::super::stream::{Found, at, ensure, epochs, state};
use super::super::{Error, Outbox, Runtime, ShardMeta, ShardStatus, stream_name, subject};
use super::resume::{Resume, Row, Tail, resume};

/// A stream that agrees with the outbox.
pub(super) struct Attached {
    pub(super) name: String,
    pub(super) subject: String,
    pub(super) meta: ShardMeta,
    pub(super) resume: Resume,
    /// Highest number with evidence.
    pub(super) evidence: u64,
}

/// Opens or creates the stream and compares. The position comes from the stream, not from the evidence.
pub(super) async fn attach<O: Outbox>(
    runtime: &Runtime,
    jetstream: &jetstream::Context,
    outbox: &O,
) -> Result<Attached, Error> {
    runtime.wait_connected().await?;
    let (lane, meta) = (outbox.lane(), outbox.meta().await?);
    check_serving(runtime, jetstream, outbox, &meta).await?;
    let first = first_row(outbox).await?.max(meta.first_seq);
    let stream = ensure(jetstream, &runtime.settings, &lane, meta, first).await?;
    let name = stream.cached_info().config.name.clone();
    let (state, _) = state(&stream).await?;
    let last = state.last_sequence;
    let found = if state.messages == 0 { Found::Nothing } else { at(&stream, last).await? };
    // Evidence and row are read after the end of the stream: whatever is in the stream was committed before.
    let row = outbox
        .read_after(last.saturating_sub(1), 1)
        .await?
        .first()
        .map(|row| Row { seq: row.seq, event_id: row.event_id });
    let evidence = outbox.last_evidence().await?;
    let resume = resume(&Tail { stream: name.clone(), last, found }, row, evidence)?;
    let subject = subject(&runtime.settings.stream_prefix, &lane, meta.epoch);
    if let Some((from, to)) = resume.lost_by_stream {
        tracing::warn!(%lane, stream = name, from, to, "the stream has lost messages it acknowledged; publishing them again");
    }
    if let Some((from, to)) = resume.evidence_missing {
        tracing::info!(%lane, stream = name, from, to, "writing the evidence that an interruption left out");
        outbox.record_evidence(from, to, &name).await?;
    }
    Ok(Attached { name, subject, meta, evidence: evidence.max(last), resume })
}

/// First number the outbox has; 1 when it has none.
pub(super) async fn first_row<O: Outbox>(outbox: &O) -> Result<u64, Error> {
    Ok(outbox.read_after(0, 1).await?.first().map_or(1, |row| row.seq))
}

/// Refuses a shard whose publisher has to repair it first. Where nobody can, only what is compared next is refused.
async fn check_serving<O: Outbox>(
    runtime: &Runtime,
    jetstream: &jetstream::Context,
    outbox: &O,
    meta: &ShardMeta,
) -> Result<(), Error> {
    if outbox.repair().is_none() || !runtime.settings.repair_lost_tails {
        return Ok(());
    }
    let (lane, prefix) = (outbox.lane(), &runtime.settings.stream_prefix);
    if meta.status == ShardStatus::Repairing || meta.server_changed {
        return Err(Error::RepairDue { lane: lane.to_string() });
    }
    // The record of a repair may be lost like any commit; its stream is not.
    let newest = epochs(jetstream, prefix, &lane).await?.last().copied();
    match newest.filter(|newest| *newest > meta.epoch) {
        None => Ok(()),
        Some(newest) => Err(Error::Sealed { stream: stream_name(prefix, &lane, newest) }),
    }
}
