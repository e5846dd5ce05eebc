//! Filling a hole: what the stream lacks is read from the outbox and applied like any other message.

use likewise_domain::lane::Offset;

use super::compare::REPAIR;
use super::feed::{End, apply};
use super::run::Run;
use crate::lanes::checkpoint::{Checkpoint, claim};
use crate::lanes::{Error, Projection, Upstream};

impl<P: Projection> Run<P> {
    /// Applies what is due up to `to` from the outbox. `hole` is told again where no publisher can be asked.
    pub(super) async fn fill(&self, owner_epoch: i64, to: u64, hole: Error) -> Result<(), End> {
        let Some(upstream) = self.runtime.upstream.clone() else { return Err(hole.into()) };
        let claimed = claim(&self.pool, &self.name, &self.lane.to_string(), owner_epoch).await?;
        let mut checkpoint = claimed.ok_or(End::Fenced)?;
        self.agree(&*upstream, &checkpoint).await?;
        let from = checkpoint.next_offset;
        while checkpoint.next_offset <= to {
            let due = Offset { epoch: checkpoint.epoch, seq: checkpoint.next_offset };
            let left = usize::try_from(to - due.seq).unwrap_or(usize::MAX).saturating_add(1);
            let batch = upstream.read(self.lane, due, left.min(self.runtime.settings.consume_batch)).await?;
            let filled = batch.len() as u64;
            checkpoint = apply(self, owner_epoch, checkpoint, batch).await?;
            self.metrics.filled.inc_by(filled);
        }
        let (projection, lane) = (&self.name, self.lane);
        tracing::warn!(projection, %lane, from, to, "messages that the stream lacks were read from the outbox");
        Ok(())
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
