//! What leaves command by the broker: a shard's outbox, as the lanes publish it, and signals to risk.

mod signals;

use bytes::Bytes;
use futures::future::BoxFuture;
use likewise_kit::lanes::{
    Error, Lane, LaneMessage, Outbox, OutboxMessage, OutboxWatermarks, Repair, ShardMeta, last_evidence,
    record_evidence, shard_meta,
};
use likewise_kit::pg::Pool;
use likewise_proto::convert::{RELATION_CHANGED, RELATION_HIDDEN_CHANGED, relation_changed, relation_hidden_changed};
use likewise_proto::events::v1 as events;
use prost::Message as _;

pub(crate) use self::signals::Signals;
use crate::store::lock;
use crate::store::outbox::{Event, Stored, read_after, restate, watermarks};

/// Class of the lanes that carry relations.
pub const LANE_CLASS: &str = "rel";

/// The outbox of one shard.
pub(crate) struct RelationOutbox {
    pub(crate) shard: u16,
    pub(crate) pool: Pool,
}

fn message(stored: &Stored) -> OutboxMessage {
    let (schema, payload) = match &stored.event {
        Event::Changed(event) => (RELATION_CHANGED, relation_changed(event).encode_to_vec()),
        Event::HiddenChanged(event) => (RELATION_HIDDEN_CHANGED, relation_hidden_changed(event).encode_to_vec()),
    };
    OutboxMessage {
        seq: stored.seq,
        event_id: stored.event_id,
        schema,
        payload: Bytes::from(payload),
        created_at: stored.created_at,
    }
}

impl Outbox for RelationOutbox {
    fn lane(&self) -> Lane {
        Lane { class: LANE_CLASS, shard: self.shard }
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn read_after(&self, seq: u64, limit: usize) -> Result<Vec<OutboxMessage>, Error> {
        let rows = read_after(&self.pool, self.shard, seq, limit).await;
        let rows = rows.map_err(|error| Error::outbox("read the outbox", error))?;
        Ok(rows.iter().map(message).collect())
    }

    async fn meta(&self) -> Result<ShardMeta, Error> {
        shard_meta(&self.pool).await
    }

    async fn last_evidence(&self) -> Result<u64, Error> {
        last_evidence(&self.pool).await
    }

    async fn record_evidence(&self, from_seq: u64, to_seq: u64, stream: &str) -> Result<(), Error> {
        record_evidence(&self.pool, from_seq, to_seq, stream).await
    }

    async fn watermarks(&self) -> Result<OutboxWatermarks, Error> {
        let stood = watermarks(&self.pool).await;
        let stood = stood.map_err(|error| Error::outbox("read the outbox's watermarks", error))?;
        Ok(OutboxWatermarks {
            committed_seq: stood.committed,
            published_seq: stood.published,
            oldest_unpublished_at: stood.oldest_unpublished_at,
        })
    }

    fn repair(&self) -> Option<&dyn Repair> {
        Some(self)
    }
}

impl Repair for RelationOutbox {
    fn lock(&self) -> (i32, i32) {
        (lock::SHARD, i32::from(self.shard))
    }

    fn restate<'a>(&'a self, epoch: u32, messages: &'a [LaneMessage]) -> BoxFuture<'a, Result<u64, Error>> {
        Box::pin(async move {
            let pairs: Vec<(String, String)> = messages.iter().filter_map(pair).collect();
            let (users, videos): (Vec<&str>, Vec<&str>) =
                pairs.iter().map(|(user, video)| (user.as_str(), video.as_str())).unzip();
            let restated = restate(&self.pool, self.shard, epoch, &users, &videos).await;
            restated.map_err(|error| Error::outbox("state relations again", error))
        })
    }
}

/// User and video that a message of the lane is about. Whatever else it says is not a fact any more.
fn pair(message: &LaneMessage) -> Option<(String, String)> {
    let payload = message.payload.clone();
    let pair = match message.schema.as_str() {
        RELATION_CHANGED => events::RelationChanged::decode(payload).ok().map(|event| (event.user_id, event.video_id)),
        RELATION_HIDDEN_CHANGED => {
            events::RelationHiddenChanged::decode(payload).ok().map(|event| (event.user_id, event.video_id))
        }
        _ => None,
    };
    if pair.is_none() {
        let (lane, offset, schema) = (message.lane, message.offset, &message.schema);
        tracing::error!(%lane, ?offset, schema, "a lost message cannot be read: what it was about is not stated again");
    }
    pair
}
