//! What leaves command by the broker: a shard's outbox, as the lanes publish it, and signals to risk.

mod signals;

use bytes::Bytes;
use likewise_kit::lanes::{
    Error, Lane, Outbox, OutboxMessage, OutboxWatermarks, ShardMeta, last_evidence, record_evidence, shard_meta,
};
use likewise_kit::pg::Pool;
use likewise_proto::convert::{RELATION_CHANGED, RELATION_HIDDEN_CHANGED, relation_changed, relation_hidden_changed};
use prost::Message as _;

pub(crate) use self::signals::Signals;
use crate::store::outbox::{Event, Stored, read_after, watermarks};

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
}
