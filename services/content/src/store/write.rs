//! One change: everything in it commits together, under the schema's lock.

use likewise_domain::relation::effective_version;
use time::OffsetDateTime;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{Error, LOCK_CLASS, account, bigint, post, version};
use crate::model::{Account, Post};

/// A transaction that holds the schema's lock. What it does not commit did not happen.
pub struct Txn<'a> {
    inner: deadpool_postgres::Transaction<'a>,
    /// The schema's epoch.
    pub epoch: u32,
    /// The time of this transaction's changes, by the database clock.
    pub now: OffsetDateTime,
}

impl<'a> Txn<'a> {
    /// Begins, takes the lock as a statement of its own, and only then reads anything: under READ COMMITTED each
    /// statement sees what was committed before it began, so nothing is decided on a state from before the wait.
    ///
    /// # Errors
    /// When PostgreSQL does not answer or the lock is not had in time.
    pub async fn begin(client: &'a mut deadpool_postgres::Client) -> Result<Self, Error> {
        let inner = client.transaction().await?;
        // Prepared before the lock is taken: everybody else waits while it is held.
        let shard_now = inner.prepare_cached(include_str!("shard_now.sql")).await?;
        let lock = inner.prepare_cached(include_str!("lock.sql")).await?;
        inner.query_one(&lock, &[&LOCK_CLASS, &0_i32]).await?;
        let row = inner.query_one(&shard_now, &[]).await?;
        let epoch: i32 = row.try_get(0)?;
        Ok(Self { inner, epoch: u32::try_from(epoch).unwrap_or(0), now: row.try_get(1)? })
    }

    /// Commits.
    ///
    /// # Errors
    /// When PostgreSQL does not answer: then the outcome is unknown, and asking again tells.
    pub async fn commit(self) -> Result<(), Error> {
        Ok(self.inner.commit().await?)
    }

    async fn optional(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Option<Row>, Error> {
        let statement = self.inner.prepare_cached(sql).await?;
        Ok(self.inner.query_opt(&statement, parameters).await?)
    }

    async fn one(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Row, Error> {
        let statement = self.inner.prepare_cached(sql).await?;
        Ok(self.inner.query_one(&statement, parameters).await?)
    }

    async fn execute(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<(), Error> {
        let statement = self.inner.prepare_cached(sql).await?;
        self.inner.execute(&statement, parameters).await?;
        Ok(())
    }

    /// One account.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn account(&self, user: &str) -> Result<Option<Account>, Error> {
        let row = self.optional(include_str!("account_read.sql"), &[&user]).await?;
        row.map(|row| account(&row)).transpose()
    }

    /// Whether a living account other than `user` has the username.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn username_taken(&self, username: &str, user: &str) -> Result<bool, Error> {
        Ok(self.one(include_str!("username_taken.sql"), &[&username, &user]).await?.try_get(0)?)
    }

    /// Stores an account as it is after the change that has the number `seq`.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn store_account(&self, account: &Account, seq: i64) -> Result<(), Error> {
        let restore = account.restore_state.map(crate::model::AccountState::code);
        self.execute(
            include_str!("account_write.sql"),
            &[
                &account.user_id,
                &account.username,
                &account.state.code(),
                &account.is_private,
                &account.listable,
                &account.likes_visible.code(),
                &bigint(account.version),
                &seq,
                &self.now,
                &account.deleted_at,
                &restore,
            ],
        )
        .await?;
        Ok(())
    }

    /// One video.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn post(&self, id: &str) -> Result<Option<Post>, Error> {
        let row = self.optional(include_str!("post_read.sql"), &[&id]).await?;
        row.map(|row| post(&row)).transpose()
    }

    /// Stores a video as it is after the change that has the number `seq`.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn store_post(&self, post: &Post, seq: i64) -> Result<(), Error> {
        self.execute(
            include_str!("post_write.sql"),
            &[
                &post.post_id,
                &post.author_id,
                &post.content,
                &post.status.code(),
                &post.visibility.code(),
                &post.likers_visible.code(),
                &post.count_visible,
                &bigint(post.version),
                &seq,
                &post.created_at,
                &post.updated_at,
                &post.deleted_at,
            ],
        )
        .await?;
        Ok(())
    }

    /// Effective version of a follow and whether it lives; version 0 of the epoch for one that never was.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn follow(&self, follower: &str, followee: &str) -> Result<(u64, bool), Error> {
        let row = self.optional(include_str!("follow_read.sql"), &[&follower, &followee]).await?;
        let (stored, lives) = match row {
            Some(row) => (version(row.try_get(0)?), row.try_get(1)?),
            None => (0, false),
        };
        Ok((effective_version(stored, self.epoch), lives))
    }

    /// Stores a follow at its new version.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn store_follow(&self, follower: &str, followee: &str, at: u64, lives: bool) -> Result<(), Error> {
        let deleted_at = (!lives).then_some(self.now);
        let parameters: &[&(dyn ToSql + Sync)] = &[&follower, &followee, &bigint(at), &self.now, &deleted_at];
        self.execute(include_str!("follow_write.sql"), parameters).await?;
        Ok(())
    }

    /// Adds a block; false if it was there.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn add_block(&self, blocker: &str, blocked: &str) -> Result<bool, Error> {
        Ok(self.optional(include_str!("block_add.sql"), &[&blocker, &blocked, &self.now]).await?.is_some())
    }

    /// Removes a block; false if there was none.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn remove_block(&self, blocker: &str, blocked: &str) -> Result<bool, Error> {
        Ok(self.optional(include_str!("block_remove.sql"), &[&blocker, &blocked]).await?.is_some())
    }

    /// The next version of an account's block set.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn bump_block_set(&self, user: &str) -> Result<u64, Error> {
        let floor = bigint(effective_version(0, self.epoch));
        let row = self.one(include_str!("block_set_bump.sql"), &[&user, &floor]).await?;
        Ok(version(row.try_get(0)?))
    }

    /// What an operator did, and why.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn record_act(&self, kind: &str, target: &str, actor: &str, reason: &str, at: u64) -> Result<(), Error> {
        let (id, at) = (Uuid::new_v4(), bigint(at));
        let parameters: &[&(dyn ToSql + Sync)] = &[&id, &kind, &target, &actor, &reason, &at, &self.now];
        self.execute(include_str!("act_insert.sql"), parameters).await?;
        Ok(())
    }

    /// The number the next event will have.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn next_seq(&self) -> Result<i64, Error> {
        Ok(self.one(include_str!("outbox_next.sql"), &[]).await?.try_get(0)?)
    }

    /// Appends an encoded event.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn append(&self, seq: i64, id: Uuid, schema: &str, event: &[u8]) -> Result<(), Error> {
        let parameters: &[&(dyn ToSql + Sync)] = &[&seq, &id, &schema, &event, &self.now];
        self.execute(include_str!("outbox_append.sql"), parameters).await?;
        Ok(())
    }
}
