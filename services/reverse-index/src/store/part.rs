//! One part.

use likewise_domain::id::{UserId, VideoId};
use likewise_domain::merge::LikerKey;
use likewise_kit::crash_point;
use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Error, Placement, bigint, failed, integer};
use crate::fold::Group;

const IDENTITY_CLAIM: &str = include_str!("identity_claim.sql");
const OWNER_RAISE: &str = include_str!("owner_raise.sql");
const FOLD_PLAN: &str = include_str!("fold_plan.sql");
const FOLD: &str = include_str!("fold.sql");
const PAGE: &str = include_str!("page.sql");

/// What became of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Folded {
    /// Durable. Rows that changed, and order rows removed and added.
    Applied {
        /// Relations whose version was higher than the known one.
        changed: u64,
        /// Order rows removed.
        removed: u64,
        /// Order rows added.
        listed: u64,
    },
    /// A newer owner holds the lane; nothing was written.
    Fenced,
}

/// A shard of which candidates are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The shard.
    pub reverse_shard: u32,
    /// Behind this key; `None` from the beginning.
    pub after: Option<LikerKey>,
}

/// The likers of the shards placed in one schema.
#[derive(Clone)]
pub struct Part {
    pool: Pool,
    generation: i32,
}

impl Part {
    /// On a pool whose schema is a migrated part.
    #[must_use]
    pub const fn new(pool: Pool, generation: i32) -> Self {
        Self { pool, generation }
    }

    /// Makes sure that the schema is the part the map names; a fresh one becomes it.
    ///
    /// # Errors
    /// [`Error::ForeignPart`] when it is another, or when PostgreSQL does not answer.
    pub async fn claim(&self, place: &Placement) -> Result<(), Error> {
        const ACTION: &str = "identify a part";
        let client = self.pool.get().await.map_err(|source| Error::Pool { action: ACTION, source })?;
        let part = integer(place.part);
        let parameters: [&(dyn ToSql + Sync); 2] = [&part, &place.incarnation];
        let mut row = client.query_opt(IDENTITY_CLAIM, &parameters).await.map_err(failed(ACTION))?;
        if row.is_none() {
            // Another process claimed it at that moment, which only the next snapshot shows.
            row = client.query_opt(IDENTITY_CLAIM, &parameters).await.map_err(failed(ACTION))?;
        }
        let row = row.ok_or(Error::Stored { action: ACTION, column: "identity" })?;
        let found: (i32, Uuid) = (row.get(0), row.get(1));
        if found == (part, place.incarnation) {
            return Ok(());
        }
        let (server, schema) = (place.server.clone(), place.schema.clone());
        Err(Error::ForeignPart { server, schema, found: format!("{} of {}", found.0, found.1) })
    }

    /// Fences older owners of a lane. `false` when a newer one is known here.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn raise_owner(&self, lane: &str, owner_epoch: i64) -> Result<bool, Error> {
        const ACTION: &str = "fence older owners of a lane";
        let client = self.pool.get().await.map_err(|source| Error::Pool { action: ACTION, source })?;
        let statement = client.prepare_cached(OWNER_RAISE).await.map_err(failed(ACTION))?;
        let raised = client.query_opt(&statement, &[&self.generation, &lane, &owner_epoch]).await;
        Ok(raised.map_err(failed(ACTION))?.is_some())
    }

    /// Applies a group in one transaction. Applied again, whole or cut otherwise, it changes nothing.
    ///
    /// # Errors
    /// When PostgreSQL does not answer; then it is not known whether the group is durable.
    pub async fn fold(&self, lane: &str, owner_epoch: i64, group: &Group) -> Result<Folded, Error> {
        const ACTION: &str = "fold a batch into a part";
        let mut client = self.pool.get().await.map_err(|source| Error::Pool { action: ACTION, source })?;
        let statement = client.prepare_cached(FOLD).await.map_err(failed(ACTION))?;
        let transaction = client.transaction().await.map_err(failed(ACTION))?;
        let items = &group.items;
        let videos: Vec<&str> = items.iter().map(|item| item.video.as_str()).collect();
        let users: Vec<&str> = items.iter().map(|item| item.user.as_str()).collect();
        let shards: Vec<i32> = items.iter().map(|item| integer(item.reverse_shard)).collect();
        let versions: Vec<i64> = items.iter().map(|item| bigint(item.version)).collect();
        let liked_at: Vec<Option<OffsetDateTime>> = items.iter().map(|item| item.liked_at).collect();
        let (offset, event_id) = group.last;
        let (epoch, seq) = (integer(offset.epoch), bigint(offset.seq));
        let parameters: [&(dyn ToSql + Sync); 11] = [
            &self.generation,
            &lane,
            &owner_epoch,
            &videos,
            &users,
            &shards,
            &versions,
            &liked_at,
            &epoch,
            &seq,
            &event_id,
        ];
        // One flight: the server runs them in this order.
        let (planned, row) =
            tokio::join!(transaction.batch_execute(FOLD_PLAN), transaction.query_one(&statement, &parameters));
        planned.map_err(failed(ACTION))?;
        let row = row.map_err(failed(ACTION))?;
        if row.get::<_, i64>(0) == 0 {
            return Ok(Folded::Fenced);
        }
        crash_point!("reverse.before_commit");
        transaction.commit().await.map_err(failed(ACTION))?;
        crash_point!("reverse.after_commit");
        let count = |column| row.get::<_, i64>(column).cast_unsigned();
        Ok(Folded::Applied { changed: count(1), removed: count(2), listed: count(3) })
    }

    /// Up to `limit` candidates of each wanted shard of a video, in the order of the list.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or a stored id cannot be understood.
    pub async fn page(&self, video: &VideoId, wanted: &[Wanted], limit: usize) -> Result<Vec<(u32, LikerKey)>, Error> {
        const ACTION: &str = "read likers";
        let client = self.pool.get().await.map_err(|source| Error::Pool { action: ACTION, source })?;
        let statement = client.prepare_cached(PAGE).await.map_err(failed(ACTION))?;
        let shards: Vec<i32> = wanted.iter().map(|wanted| integer(wanted.reverse_shard)).collect();
        let after = || wanted.iter().map(|wanted| wanted.after.as_ref());
        let times: Vec<Option<OffsetDateTime>> = after().map(|key| key.map(|key| key.liked_at)).collect();
        let users: Vec<Option<&str>> = after().map(|key| key.map(|key| key.user_id.as_str())).collect();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = client
            .query(&statement, &[&self.generation, &video.as_str(), &shards, &times, &users, &limit])
            .await
            .map_err(failed(ACTION))?;
        rows.iter()
            .map(|row| {
                let stored = |column| Error::Stored { action: ACTION, column };
                let shard = u32::try_from(row.get::<_, i32>(0)).map_err(|_| stored("reverse_shard"))?;
                let user_id = UserId::parse(row.get(2)).map_err(|_| stored("user_id"))?;
                Ok((shard, LikerKey { liked_at: row.get(1), user_id }))
            })
            .collect()
    }
}
