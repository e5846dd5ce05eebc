//! PostgreSQL: the only modules that know SQL.

mod outbox;
mod read;
mod write;

pub use outbox::{Stored, Watermarks, read_after, watermarks};
pub use read::{AccountPolicy, BlockSet, Changed, Edge, ListKey, PostPolicy, Reader};
pub use write::Txn;

use likewise_evolution::Migration;
use likewise_kit::pg::{FailureKind, failure_kind};
use tokio_postgres::Row;

use crate::model::{Account, AccountState, LikersVisible, LikesVisible, Post, PostStatus, Visibility};

/// Schema of the service.
pub const SCHEMA: &str = "content";
/// Migrations of the schema, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration { name: "V0001__content", sql: include_str!("../migrations/V0001__content.sql") },
    Migration { name: "V0002__lane_epochs", sql: include_str!("../migrations/V0002__lane_epochs.sql") },
    Migration { name: "V0003__lane_registry", sql: include_str!("../migrations/V0003__lane_registry.sql") },
];

/// Class of the schema's advisory lock. The one lock of this service.
const LOCK_CLASS: i32 = 7_420;

/// A statement did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The statement, or its connection, failed.
    #[error("query PostgreSQL")]
    Statement(#[from] tokio_postgres::Error),
    /// No connection came out of the pool.
    #[error("take a connection to PostgreSQL")]
    Pool(#[from] deadpool_postgres::PoolError),
    /// A stored value that no version of this service writes.
    #[error("column {0} holds a value that cannot be understood")]
    Stored(&'static str),
}

impl Error {
    /// Whether it may work when tried again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Statement(error) => matches!(failure_kind(error), FailureKind::Retry | FailureKind::Unavailable),
            Self::Pool(_) => true,
            Self::Stored(_) => false,
        }
    }
}

/// Versions are never negative; the tables check it.
fn version(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or(0)
}

/// Versions stay far below 2^63: the epoch takes the bits above 40.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn code<T>(row: &Row, column: usize, name: &'static str, parse: impl Fn(i16) -> Option<T>) -> Result<T, Error> {
    parse(row.try_get(column)?).ok_or(Error::Stored(name))
}

fn account(row: &Row) -> Result<Account, Error> {
    let restore: Option<i16> = row.try_get(8)?;
    Ok(Account {
        user_id: row.try_get(0)?,
        username: row.try_get(1)?,
        state: code(row, 2, "account.state", AccountState::from_code)?,
        is_private: row.try_get(3)?,
        listable: row.try_get(4)?,
        likes_visible: code(row, 5, "account.likes_visible", LikesVisible::from_code)?,
        version: version(row.try_get(6)?),
        deleted_at: row.try_get(7)?,
        restore_state: restore.and_then(AccountState::from_code),
    })
}

fn post(row: &Row) -> Result<Post, Error> {
    Ok(Post {
        post_id: row.try_get(0)?,
        author_id: row.try_get(1)?,
        content: row.try_get(2)?,
        status: code(row, 3, "post.status", PostStatus::from_code)?,
        visibility: code(row, 4, "post.visibility", Visibility::from_code)?,
        likers_visible: code(row, 5, "post.likers_visible", LikersVisible::from_code)?,
        count_visible: row.try_get(6)?,
        version: version(row.try_get(7)?),
        created_at: row.try_get(8)?,
        updated_at: row.try_get(9)?,
        deleted_at: row.try_get(10)?,
    })
}
