//! Repairing a shard that lost commits which were published.
//!
//! One pass that may be killed anywhere and is run again from the start or from its record: every stream of the lane is
//! sealed, so that nothing enters behind our back; the last number is found at which outbox and streams are one history;
//! epoch and number are recorded (from then on the shard takes no changes); the new epoch's stream is made, beginning one
//! after that number; everything that the streams name after it is stated again with versions above all that were ever
//! published; the shard serves. Rows that the outbox has after the number go into the new stream as they are.
//!
//! Never: repairs the database that was left behind (its outbox agrees with a stream that somebody else sealed).

use async_nats::jetstream::stream::Stream;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use likewise_domain::lane::Offset;

use super::attach::{attach, first_row};
use super::history::{Search, Span, Step, agrees, end, lost, next_epoch, speaker};
use super::run::Run;
use crate::crash_point;
use crate::lanes::evidence::{begin_epoch, end_epoch, give_up_shard, lane_epochs};
use crate::lanes::stream::{
    Found, SCHEMA, at, check_incarnation, ensure, epochs, found_event, message_at, open, seal, state, stream_name,
};
use crate::lanes::{Error, LaneEpoch, LaneMessage, Outbox, Repair, ShardMeta, ShardStatus};

/// Messages of a sealed stream that are read at once.
const READS: usize = 64;
/// Messages whose objects are stated again in one transaction.
const CHUNK: u64 = 500;

/// Why a step of a repair was refused: it is begun anew.
const BEHIND_OUR_BACK: &str = "another publisher was faster, or the database was put back meanwhile";

/// A stream of the lane.
struct Old {
    span: Span,
    name: String,
    stream: Stream,
}

/// A repair under way.
struct Plan {
    epoch: u32,
    /// Last number that old and new epochs have in common.
    agreed: u64,
}

impl<O: Outbox> Run<O> {
    /// Whether `error` is mended by a repair that this publisher may make.
    pub(super) fn repairs(&self, error: &Error) -> bool {
        let mendable = matches!(error, Error::LostTail { .. } | Error::Sealed { .. } | Error::RepairDue { .. });
        mendable && self.runtime.settings.repair_lost_tails && self.outbox.repair().is_some()
    }

    /// Repairs the shard, or finds that another server serves it.
    pub(super) async fn repair(&self) -> Result<(), Error> {
        let Some(repair) = self.outbox.repair() else { return Ok(()) };
        let lane = self.outbox.lane();
        // Streams first: one that is newer than the shard's epoch, which is asked for after, tells of a repair that was lost.
        let mut olds = self.streams().await?;
        let seen = self.outbox.meta().await?;
        if seen.status == ShardStatus::Moved {
            return Err(Error::Moved);
        }
        olds.iter().try_for_each(|old| check_incarnation(&old.stream.cached_info().config, seen.incarnation))?;
        let plan = match self.recorded(&seen, &olds) {
            Some(plan) => plan,
            None if self.is_repaired().await? => return Ok(()),
            None => {
                self.check_superseded(repair, &seen, &olds).await?;
                self.begin(repair, &seen, &mut olds).await?
            }
        };
        olds.retain(|old| old.span.epoch < plan.epoch);
        crash_point!("repair.after_begin");
        let meta = self.outbox.meta().await?;
        let first = first_row(&*self.outbox).await?.max(plan.agreed + 1);
        ensure(&self.jetstream, &self.runtime.settings, &lane, meta, first).await?;
        crash_point!("repair.after_create");
        let restated = self.restate(repair, &plan, &olds).await?;
        crash_point!("repair.before_end");
        if !end_epoch(self.outbox.pool(), repair.lock(), &seen, plan.epoch, restated).await? {
            return Err(Error::outbox("end the repair", BEHIND_OUR_BACK));
        }
        crash_point!("repair.after_end");
        self.metrics.repairs.inc();
        let (epoch, agreed) = (plan.epoch, plan.agreed);
        tracing::warn!(%lane, epoch, agreed, restated, "the shard is repaired and serves in a new epoch");
        Ok(())
    }

    /// Whether somebody has repaired the shard since a repair was found to be due.
    async fn is_repaired(&self) -> Result<bool, Error> {
        match attach(&self.runtime, &self.jetstream, &*self.outbox).await {
            Ok(_) => Ok(true),
            Err(error) if self.repairs(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Every stream of the lane that the broker has, oldest epoch first.
    async fn streams(&self) -> Result<Vec<Old>, Error> {
        let (lane, prefix) = (self.outbox.lane(), &self.runtime.settings.stream_prefix);
        self.runtime.wait_connected().await?;
        let mut olds = Vec::new();
        for epoch in epochs(&self.jetstream, prefix, &lane).await? {
            let name = stream_name(prefix, &lane, epoch);
            let Some(stream) = open(&self.jetstream, &name).await? else { continue };
            let span = span(epoch, &stream).await?;
            olds.push(Old { span, name, stream });
        }
        Ok(olds)
    }

    /// A repair that was begun before, unless streams tell of a later one that the database has lost.
    fn recorded(&self, meta: &ShardMeta, olds: &[Old]) -> Option<Plan> {
        let begun = meta.status == ShardStatus::Repairing && meta.epoch_pending;
        let later = olds.iter().any(|old| old.span.epoch > meta.epoch);
        (begun && !later).then(|| Plan { epoch: meta.epoch, agreed: meta.first_seq - 1 })
    }

    /// The database that was left behind agrees to its end with a stream that it did not seal itself. One that comes from
    /// a backup, or was promoted, either lacks something of it or knows itself to be on another server.
    async fn check_superseded(&self, repair: &dyn Repair, meta: &ShardMeta, olds: &[Old]) -> Result<(), Error> {
        if meta.status != ShardStatus::Serving || meta.server_changed {
            return Ok(());
        }
        let own = olds.iter().find(|old| old.span.epoch == meta.epoch);
        let later = olds.iter().filter(|old| old.span.epoch > meta.epoch).max_by_key(|old| old.span.epoch);
        let left_behind = match (own, later) {
            (Some(own), _) if !own.stream.cached_info().config.sealed => false,
            (Some(own), _) => self.holds(own).await?,
            // Whose it was cannot be told any more: a person decides.
            (None, Some(_)) => true,
            (None, None) => false,
        };
        let Some(old) = own.or(later).filter(|_| left_behind) else { return Ok(()) };
        if later.is_some() {
            give_up_shard(self.outbox.pool(), repair.lock(), meta.epoch).await?;
        }
        Err(Error::Superseded { stream: old.name.clone() })
    }

    /// Whether the outbox has the last message of a stream.
    async fn holds(&self, old: &Old) -> Result<bool, Error> {
        let last = old.span.last;
        let found = at(&old.stream, last).await?;
        let evidence = self.outbox.last_evidence().await?;
        Ok(agrees(&found, self.row_at(last).await?, last, evidence))
    }

    async fn row_at(&self, seq: u64) -> Result<Option<uuid::Uuid>, Error> {
        let Some(before) = seq.checked_sub(1) else { return Ok(None) };
        let rows = self.outbox.read_after(before, 1).await?;
        Ok(rows.first().filter(|row| row.seq == seq).map(|row| row.event_id))
    }

    /// Seals, finds the last number agreed upon, and records both epoch and number.
    async fn begin(&self, repair: &dyn Repair, meta: &ShardMeta, olds: &mut [Old]) -> Result<Plan, Error> {
        let lane = self.outbox.lane();
        for old in olds.iter_mut() {
            seal(&self.jetstream, &old.stream).await?;
            // Only now is its end final.
            old.span = span(old.span.epoch, &old.stream).await?;
        }
        crash_point!("repair.after_seal");
        let spans: Vec<Span> = olds.iter().map(|old| old.span).collect();
        let evidence = self.outbox.last_evidence().await?;
        let agreed = self.agreed(olds, &spans, evidence).await?;
        let served = served(&lane_epochs(self.outbox.pool()).await?);
        let behind: u64 = lost(&spans, agreed, &served).iter().map(|span| span.last - span.first + 1).sum();
        let epoch = next_epoch(meta.epoch, &spans);
        tracing::error!(
            %lane, epoch, agreed, lost = behind,
            "commits were lost after they were published, or the server was replaced: repairing the shard"
        );
        let (pool, lock) = (self.outbox.pool(), repair.lock());
        if !begin_epoch(pool, lock, meta, (epoch, agreed + 1), behind).await? {
            return Err(Error::outbox("begin the repair", BEHIND_OUR_BACK));
        }
        // Found missing again by whoever attaches, should it not come to this.
        if let Some(old) = speaker(&spans, agreed).and_then(|span| olds.iter().find(|old| old.span == span))
            && evidence < agreed
        {
            self.outbox.record_evidence(evidence + 1, agreed, &old.name).await?;
        }
        Ok(Plan { epoch, agreed })
    }

    /// Asks both sides number by number, few of them.
    async fn agreed(&self, olds: &[Old], spans: &[Span], evidence: u64) -> Result<u64, Error> {
        let mut search = Search::new(end(spans));
        loop {
            let asked = match search.step() {
                Step::Agreed(agreed) => return Ok(agreed),
                Step::Ask(asked) => asked,
            };
            let old = speaker(spans, asked).and_then(|span| olds.iter().find(|old| old.span == span));
            let found = match old {
                Some(old) => at(&old.stream, asked).await?,
                None => Found::Nothing,
            };
            search = search.told(asked, agrees(&found, self.row_at(asked).await?, asked, evidence));
        }
    }

    /// States everything again that the streams name after the last number agreed upon.
    async fn restate(&self, repair: &dyn Repair, plan: &Plan, olds: &[Old]) -> Result<u64, Error> {
        let spans: Vec<Span> = olds.iter().map(|old| old.span).collect();
        let served = served(&lane_epochs(self.outbox.pool()).await?);
        let mut restated = 0;
        for span in lost(&spans, plan.agreed, &served) {
            let Some(old) = olds.iter().find(|old| old.span.epoch == span.epoch) else { continue };
            let mut next = span.first;
            while next <= span.last {
                let to = span.last.min(next + CHUNK - 1);
                let messages = self.messages(old, next, to).await?;
                restated += repair.restate(plan.epoch, &messages).await?;
                crash_point!("repair.after_restate");
                next = to + 1;
            }
        }
        Ok(restated)
    }

    /// Messages of a stream; what it lacks is left out.
    async fn messages(&self, old: &Old, from: u64, to: u64) -> Result<Vec<LaneMessage>, Error> {
        let lane = self.outbox.lane();
        let read = async |seq: u64| {
            let Some(message) = message_at(&old.stream, seq).await? else { return Ok(None) };
            let Found::Event(event_id) = found_event(Some(&message.headers)) else { return Ok(None) };
            let schema = message.headers.get(SCHEMA).map_or_else(String::new, ToString::to_string);
            let (offset, published_at) = (Offset { epoch: old.span.epoch, seq }, message.time);
            Ok::<_, Error>(Some(LaneMessage { lane, offset, event_id, schema, payload: message.payload, published_at }))
        };
        let messages: Vec<Option<LaneMessage>> =
            stream::iter((from..=to).map(read)).buffered(READS).try_collect().await?;
        let found: Vec<LaneMessage> = messages.into_iter().flatten().collect();
        let missing = (to - from + 1) - found.len() as u64;
        if missing > 0 {
            tracing::error!(%lane, stream = old.name, from, to, missing, "what was lost here cannot be told any more");
        }
        Ok(found)
    }
}

/// Epochs that the database remembers to have opened.
fn served(epochs: &[LaneEpoch]) -> Vec<u32> {
    epochs.iter().filter(|known| known.served_at.is_some()).map(|known| known.epoch).collect()
}

/// Numbers of a stream as its leader has them.
async fn span(epoch: u32, stream: &Stream) -> Result<Span, Error> {
    let (state, _) = state(stream).await?;
    let first = stream.cached_info().config.first_sequence.unwrap_or(1).max(1);
    Ok(Span { epoch, first, last: state.last_sequence })
}
