//! What a stream cannot give: a hole is filled from the outbox and applied like any other message; a sealed stream is
//! followed by that of the next epoch.
//!
//! Promises: nothing that the facts still hold is passed over. What an epoch lost for good, the next one begins by stating
//! again, so only numbers after the last that both have in common may be passed, and only once the next epoch's stream
//! shows which that is.

use likewise_domain::lane::Offset;

use super::compare::REPAIR;
use super::feed::{End, apply};
use super::run::Run;
use crate::crash_point;
use crate::lanes::checkpoint::{Checkpoint, claim, go_to};
use crate::lanes::stream::{epochs, open};
use crate::lanes::{Error, Projection, Upstream, stream_name};

impl<P: Projection> Run<P> {
    /// Goes past a hole that ends at `to`: fills what the facts have, and passes over what this epoch lost. `hole` is told
    /// again where no publisher can be asked.
    pub(super) async fn pass_hole(&self, owner_epoch: i64, to: u64, hole: End) -> Result<(), End> {
        let checkpoint = self.claimed(owner_epoch).await?;
        let common = self.successor(checkpoint.epoch).await?.map_or(u64::MAX, |next| next.seq - 1);
        let Some(checkpoint) = self.fill(owner_epoch, checkpoint, to.min(common), hole).await? else { return Ok(()) };
        if checkpoint.next_offset <= to {
            let next = Offset { epoch: checkpoint.epoch, seq: to + 1 };
            self.go_on(owner_epoch, &checkpoint, next).await?;
            self.metrics.passed.inc_by(next.seq - checkpoint.next_offset);
        }
        Ok(())
    }

    /// Goes on in the next epoch, whose stream begins one after the last number that both have in common.
    pub(super) async fn succeed(&self, owner_epoch: i64) -> Result<(), End> {
        let checkpoint = self.claimed(owner_epoch).await?;
        let Some(next) = self.successor(checkpoint.epoch).await? else { return Err(End::NextEpoch) };
        let stream = stream_name(&self.runtime.settings.stream_prefix, &self.lane, checkpoint.epoch);
        let hole = Error::Gap { stream, from: checkpoint.next_offset, to: next.seq - 1 };
        let filled = self.fill(owner_epoch, checkpoint, next.seq - 1, hole.into()).await?;
        let Some(checkpoint) = filled else { return Ok(()) };
        crash_point!("projector.before_next_epoch");
        self.go_on(owner_epoch, &checkpoint, next).await?;
        crash_point!("projector.after_next_epoch");
        Ok(())
    }

    /// Where the next epoch of the lane begins, if the broker has its stream.
    pub(super) async fn successor(&self, epoch: u32) -> Result<Option<Offset>, Error> {
        let prefix = &self.runtime.settings.stream_prefix;
        let all = epochs(&self.jetstream, prefix, &self.lane).await?;
        let Some(epoch) = all.into_iter().find(|other| *other > epoch) else { return Ok(None) };
        let stream = open(&self.jetstream, &stream_name(prefix, &self.lane, epoch)).await?;
        Ok(stream.map(|stream| Offset { epoch, seq: stream.cached_info().config.first_sequence.unwrap_or(1).max(1) }))
    }

    /// Applies what is due up to `to` from the outbox. `None` when the lane is now to be read in an epoch before `to`'s, whose
    /// stream is gone as well.
    async fn fill(&self, owner_epoch: i64, from: Checkpoint, to: u64, hole: End) -> Result<Option<Checkpoint>, End> {
        let mut checkpoint = from;
        if checkpoint.next_offset > to {
            return Ok(Some(checkpoint));
        }
        let Some(upstream) = self.runtime.upstream.clone() else { return Err(hole) };
        self.agree(&*upstream, &checkpoint).await?;
        let from = checkpoint.next_offset;
        while checkpoint.next_offset <= to {
            let due = Offset { epoch: checkpoint.epoch, seq: checkpoint.next_offset };
            let left = usize::try_from(to - due.seq).unwrap_or(usize::MAX).saturating_add(1);
            let batch = match upstream.read(self.lane, due, left.min(self.runtime.settings.consume_batch)).await {
                Ok(batch) => batch,
                Err(Error::EpochChanged { next, .. }) if self.successor(due.epoch).await?.is_some() => {
                    self.go_on(owner_epoch, &checkpoint, next).await?;
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            };
            let filled = batch.len() as u64;
            checkpoint = apply(self, owner_epoch, checkpoint, batch).await?;
            self.metrics.filled.inc_by(filled);
        }
        let (projection, lane) = (&self.name, self.lane);
        tracing::warn!(projection, %lane, from, to, "messages that the stream lacks were read from the outbox");
        Ok(Some(checkpoint))
    }

    async fn claimed(&self, owner_epoch: i64) -> Result<Checkpoint, End> {
        let claimed = claim(&self.pool, &self.name, &self.lane.to_string(), owner_epoch).await?;
        claimed.ok_or(End::Fenced)
    }

    async fn go_on(&self, owner_epoch: i64, from: &Checkpoint, to: Offset) -> Result<Checkpoint, End> {
        let moved = go_to(&self.pool, &self.name, owner_epoch, from, to).await?.ok_or(End::Fenced)?;
        self.shared.at(&moved);
        let (projection, lane, from) = (&self.name, self.lane, Offset { epoch: from.epoch, seq: from.next_offset });
        tracing::warn!(projection, %lane, ?from, ?to, "going on elsewhere in the lane");
        Ok(moved)
    }

    /// The outbox has to continue what was applied, as the stream has to.
    async fn agree(&self, upstream: &dyn Upstream, checkpoint: &Checkpoint) -> Result<(), Error> {
        let Some(expected) = checkpoint.last_event_id.filter(|_| checkpoint.next_offset > 1) else { return Ok(()) };
        let applied = Offset { epoch: checkpoint.epoch, seq: checkpoint.next_offset - 1 };
        let row = match upstream.read(self.lane, applied, 1).await {
            // Nothing to compare with any more.
            Err(Error::RetentionGap { .. }) => return Ok(()),
            row => row?,
        };
        match row.first() {
            Some(row) if row.event_id != expected => Err(Error::LostTail {
                stream: format!("outbox of {}", self.lane),
                seq: applied.seq,
                found: row.event_id.to_string(),
                expected: expected.to_string(),
                advice: REPAIR,
            }),
            _ => Ok(()),
        }
    }
}
