//! The outbox as messages: encoding what changed, and handing it to the lane.

use bytes::Bytes;
use likewise_kit::lanes::{
    Error, Lane, Outbox, OutboxMessage, OutboxWatermarks, ShardMeta, last_evidence, record_evidence, shard_meta,
};
use likewise_kit::pg::Pool;
use likewise_proto::convert::{ACCOUNT_CHANGED, BLOCK_SET_CHANGED, VIDEO_POLICY_CHANGED, timestamp};
use likewise_proto::events::v1 as events;
use prost::Message as _;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::grpc::wire;
use crate::model::Event;
use crate::store;

/// The lane of this service.
pub const LANE: Lane = Lane { class: "content", shard: 0 };

/// Schema name and bytes of an event.
#[must_use]
pub fn encode(id: Uuid, event: &Event, now: OffsetDateTime) -> (&'static str, Vec<u8>) {
    let (event_id, changed_at) = (id.to_string(), Some(timestamp(now)));
    match event {
        Event::Account(account) => {
            let policy = Some(wire::account(account));
            (ACCOUNT_CHANGED, events::AccountChanged { event_id, policy, changed_at }.encode_to_vec())
        }
        Event::Post(post) => {
            let policy = Some(wire::video(post));
            (VIDEO_POLICY_CHANGED, events::VideoPolicyChanged { event_id, policy, changed_at }.encode_to_vec())
        }
        Event::BlockSet { user_id, version } => {
            let user_id = user_id.clone();
            let message = events::BlockSetChanged { event_id, user_id, version: *version, changed_at };
            (BLOCK_SET_CHANGED, message.encode_to_vec())
        }
    }
}

fn schema(stored: &str) -> Result<&'static str, Error> {
    [ACCOUNT_CHANGED, VIDEO_POLICY_CHANGED, BLOCK_SET_CHANGED]
        .into_iter()
        .find(|known| *known == stored)
        .ok_or_else(|| Error::outbox("read the outbox", format!("unknown schema {stored}")))
}

/// The service's outbox.
pub struct ContentOutbox {
    /// Pool on the schema.
    pub pool: Pool,
}

impl Outbox for ContentOutbox {
    fn lane(&self) -> Lane {
        LANE
    }

    fn pool(&self) -> &Pool {
        &self.pool
    }

    async fn read_after(&self, seq: u64, limit: usize) -> Result<Vec<OutboxMessage>, Error> {
        let rows = store::read_after(&self.pool, seq, limit).await;
        let rows = rows.map_err(|error| Error::outbox("read the outbox", error))?;
        rows.into_iter()
            .map(|row| {
                Ok(OutboxMessage {
                    seq: row.seq,
                    event_id: row.event_id,
                    schema: schema(&row.schema)?,
                    payload: Bytes::from(row.event),
                    created_at: row.created_at,
                })
            })
            .collect()
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
        let stood = store::watermarks(&self.pool).await;
        let stood = stood.map_err(|error| Error::outbox("read the outbox's watermarks", error))?;
        Ok(OutboxWatermarks {
            committed_seq: stood.committed,
            published_seq: stood.published,
            oldest_unpublished_at: stood.oldest_unpublished_at,
        })
    }
}
