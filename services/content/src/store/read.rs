//! Reads, one statement per call.

use likewise_domain::relation::effective_version;
use likewise_kit::pg::Pool;
use time::OffsetDateTime;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{Error, bigint, code, post, version};
use crate::model::{AccountState, LikersVisible, LikesVisible, Pair, Post, PostStatus, Visibility};

/// Policy of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountPolicy {
    /// The account.
    pub user_id: String,
    /// State.
    pub state: AccountState,
    /// Listed only to followers.
    pub is_private: bool,
    /// False: private to all.
    pub listable: bool,
    /// Who may see what it likes.
    pub likes_visible: LikesVisible,
    /// Effective version.
    pub version: u64,
}

/// Policy of a video.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostPolicy {
    /// The video.
    pub post_id: String,
    /// Its author.
    pub author_id: String,
    /// Life cycle.
    pub status: PostStatus,
    /// Who may see it.
    pub visibility: Visibility,
    /// Who may see its likers.
    pub likers_visible: LikersVisible,
    /// Whether others see the count.
    pub count_visible: bool,
    /// Effective version.
    pub version: u64,
    /// Whether it is deleted.
    pub deleted: bool,
}

/// Everyone an account blocks or is blocked by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockSet {
    /// The others, at most as many as asked for.
    pub others: Vec<String>,
    /// There are more.
    pub truncated: bool,
    /// Effective version.
    pub version: u64,
}

/// What changed after a number, each with the number of its last change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changed {
    /// Accounts.
    pub accounts: Vec<(i64, AccountPolicy)>,
    /// Videos.
    pub posts: Vec<(i64, PostPolicy)>,
}

/// Key of the last row of a page: time and tie-breaker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListKey {
    /// Time.
    pub at: OffsetDateTime,
    /// Id.
    pub id: String,
}

/// One side of a follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    /// The account on the other side.
    pub user_id: String,
    /// Since when.
    pub at: OffsetDateTime,
}

/// Reads from the schema.
#[derive(Clone)]
pub struct Reader {
    pool: Pool,
}

impl Reader {
    /// Over a pool on the schema.
    #[must_use]
    pub const fn new(pool: Pool) -> Self {
        Self { pool }
    }

    async fn rows(&self, sql: &str, parameters: &[&(dyn ToSql + Sync)]) -> Result<Vec<Row>, Error> {
        let client = self.pool.get().await?;
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query(&statement, parameters).await?)
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), Error> {
        self.rows(include_str!("shard_now.sql"), &[]).await.map(drop)
    }

    /// One video.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn post(&self, id: &str) -> Result<Option<Post>, Error> {
        let rows = self.rows(include_str!("post_read.sql"), &[&id]).await?;
        rows.first().map(post).transpose()
    }

    /// Policies of those of `ids` that exist, in any order.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn post_policies(&self, ids: &[String]) -> Result<Vec<PostPolicy>, Error> {
        self.rows(include_str!("video_policies.sql"), &[&ids]).await?.iter().map(post_policy).collect()
    }

    /// Policies of those of `ids` that exist, in any order.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn account_policies(&self, ids: &[String]) -> Result<Vec<AccountPolicy>, Error> {
        self.rows(include_str!("account_policies.sql"), &[&ids]).await?.iter().map(account_policy).collect()
    }

    /// Everyone `user` blocks or is blocked by, at most `limit`.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn block_set(&self, user: &str, limit: i64) -> Result<BlockSet, Error> {
        let rows = self.rows(include_str!("block_set.sql"), &[&user, &(limit + 1)]).await?;
        let row = rows.first().ok_or(Error::Stored("shard_meta"))?;
        let (stored, epoch): (i64, i32) = (row.try_get(0)?, row.try_get(1)?);
        let mut others: Vec<String> = row.try_get(2)?;
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let truncated = others.len() > limit;
        others.truncate(limit);
        let epoch = u32::try_from(epoch).unwrap_or(0);
        Ok(BlockSet { others, truncated, version: effective_version(version(stored), epoch) })
    }

    /// How `user` stands to each of `others`, in any order.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn pairs(&self, user: &str, others: &[String]) -> Result<Vec<Pair>, Error> {
        let rows = self.rows(include_str!("pairs.sql"), &[&user, &others]).await?;
        rows.iter()
            .map(|row| {
                let (follows, followed): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
                let friends = follows && followed;
                Ok(Pair { other_id: row.try_get(0)?, friends, blocked: row.try_get(3)?, follows })
            })
            .collect()
    }

    /// The first `limit` accounts and the first `limit` videos changed after the number `seq`, by number.
    ///
    /// Numbers are given in commit order, so everything up to the last one read first is committed; what commits between
    /// the two look-ups has a higher number and waits for the next sweep.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn changed_since(&self, seq: i64, limit: i64) -> Result<Changed, Error> {
        let bound = bigint(super::outbox::watermarks(&self.pool).await?.committed);
        let accounts = self.rows(include_str!("changed_accounts.sql"), &[&seq, &limit, &bound]).await?;
        let posts = self.rows(include_str!("changed_posts.sql"), &[&seq, &limit, &bound]).await?;
        let accounts: Result<_, Error> =
            accounts.iter().map(|row| Ok((row.try_get(6)?, account_policy(row)?))).collect();
        let posts: Result<_, Error> = posts.iter().map(|row| Ok((row.try_get(8)?, post_policy(row)?))).collect();
        Ok(Changed { accounts: accounts?, posts: posts? })
    }

    /// An author's videos after `after`, newest first. `own` shows all, `friend` also what is for friends.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn posts_by(
        &self,
        author: &str,
        after: &ListKey,
        (own, friend): (bool, bool),
        limit: i64,
    ) -> Result<Vec<Post>, Error> {
        let parameters: &[&(dyn ToSql + Sync)] = &[&author, &after.at, &after.id, &own, &friend, &limit];
        self.rows(include_str!("posts_by_author.sql"), parameters).await?.iter().map(post).collect()
    }

    /// Who follows `user` after `after`, newest first.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn followers(&self, user: &str, after: &ListKey, limit: i64) -> Result<Vec<Edge>, Error> {
        self.edges(include_str!("followers.sql"), user, after, limit).await
    }

    /// Whom `user` follows after `after`, newest first.
    ///
    /// # Errors
    /// When PostgreSQL does not answer.
    pub async fn following(&self, user: &str, after: &ListKey, limit: i64) -> Result<Vec<Edge>, Error> {
        self.edges(include_str!("following.sql"), user, after, limit).await
    }

    async fn edges(&self, sql: &str, user: &str, after: &ListKey, limit: i64) -> Result<Vec<Edge>, Error> {
        let rows = self.rows(sql, &[&user, &after.at, &after.id, &limit]).await?;
        rows.iter().map(|row| Ok(Edge { user_id: row.try_get(0)?, at: row.try_get(1)? })).collect()
    }
}

fn account_policy(row: &Row) -> Result<AccountPolicy, Error> {
    Ok(AccountPolicy {
        user_id: row.try_get(0)?,
        state: code(row, 1, "account.state", AccountState::from_code)?,
        is_private: row.try_get(2)?,
        listable: row.try_get(3)?,
        likes_visible: code(row, 4, "account.likes_visible", LikesVisible::from_code)?,
        version: version(row.try_get(5)?),
    })
}

fn post_policy(row: &Row) -> Result<PostPolicy, Error> {
    Ok(PostPolicy {
        post_id: row.try_get(0)?,
        author_id: row.try_get(1)?,
        status: code(row, 2, "post.status", PostStatus::from_code)?,
        visibility: code(row, 3, "post.visibility", Visibility::from_code)?,
        likers_visible: code(row, 4, "post.likers_visible", LikersVisible::from_code)?,
        count_visible: row.try_get(5)?,
        version: version(row.try_get(6)?),
        deleted: row.try_get(7)?,
    })
}
