//! PostgreSQL: the metadata schema with contracts, map and quarantine, and the parts with tombstones and order rows. The only
//! modules that know SQL.

mod metadata;
mod part;

pub use metadata::{Metadata, Placement, Quarantined};
pub use part::{Folded, Part, Wanted};

use likewise_kit::pg::{FailureKind, failure_kind};

/// A statement did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The statement, or its connection, failed.
    #[error("{action}")]
    Statement {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        source: tokio_postgres::Error,
    },
    /// No connection came out of the pool.
    #[error("{action}: take a connection to PostgreSQL")]
    Pool {
        /// What was being done.
        action: &'static str,
        /// Why there is none.
        source: deadpool_postgres::PoolError,
    },
    /// A stored value that no version of this service writes.
    #[error("{action}: the stored {column} cannot be understood")]
    Stored {
        /// What was being done.
        action: &'static str,
        /// Where it stands.
        column: &'static str,
    },
    /// The schema belongs to another part, or to another installation.
    #[error(
        "schema {schema} on server {server:?} is part {found}, not the one that the part map names: correct the server's \
         address, or move the foreign schema away"
    )]
    ForeignPart {
        /// The server.
        server: String,
        /// The schema.
        schema: String,
        /// What it says of itself.
        found: String,
    },
}

impl Error {
    /// Whether it may work when tried again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Statement { source, .. } => {
                matches!(failure_kind(source), FailureKind::Retry | FailureKind::Unavailable)
            }
            Self::Pool { .. } => true,
            Self::Stored { .. } | Self::ForeignPart { .. } => false,
        }
    }

    /// The message with its causes, for logs and watermarks.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Names the statement that failed.
fn failed(action: &'static str) -> impl Fn(tokio_postgres::Error) -> Error {
    move |source| Error::Statement { action, source }
}

/// A number that PostgreSQL keeps as a bigint. Offsets and versions stay far below its end.
fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A small number that PostgreSQL keeps as an integer.
fn integer(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
