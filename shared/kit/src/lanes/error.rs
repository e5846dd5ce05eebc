//! What can go wrong with a lane, in words that say what to do.

use likewise_domain::lane::Offset;
use uuid::Uuid;

/// A cause from another library.
type Source = Box<dyn std::error::Error + Send + Sync>;

/// Failure of a lane's machinery.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A statement failed. Tried again after a pause.
    #[error("query PostgreSQL")]
    Postgres(#[from] tokio_postgres::Error),
    /// No connection came out of the pool. Tried again after a pause.
    #[error("take a connection to PostgreSQL")]
    Pool(#[from] deadpool_postgres::PoolError),
    /// The lease could not be asked for. Tried again after a pause.
    #[error("ask for the lease of the lane")]
    Lease(#[from] crate::lease::Error),
    /// The service's own outbox code failed for another reason. Tried again after a pause.
    #[error("{action}")]
    Outbox {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        source: Source,
    },
    /// NATS did not do what was asked, or is not reachable. Tried again after a pause.
    #[error("{action}")]
    Nats {
        /// What was being done.
        action: &'static str,
        /// Why it failed.
        source: Source,
    },
    /// There is no connection to NATS. Tried again after a pause.
    #[error("NATS is not connected")]
    Disconnected,
    /// The NATS server is too old.
    #[error("NATS server is {found}, lanes need {minimum} or newer: upgrade the server")]
    ServerTooOld {
        /// Version the server names.
        found: String,
        /// Minimum version.
        minimum: &'static str,
    },
    /// A stream of this name belongs to another incarnation of the shard, and is never adopted.
    #[error(
        "stream {stream} belongs to incarnation {found} but the shard is {expected}: another installation uses this \
         stream prefix, or the database was recreated; choose another lanes.stream_prefix or remove the old stream"
    )]
    ForeignStream {
        /// Name of the stream.
        stream: String,
        /// Incarnation in the stream's metadata, empty when it has none.
        found: String,
        /// Incarnation of the shard.
        expected: Uuid,
    },
    /// A stream of this name exists with a configuration that breaks a promise of lanes.
    #[error("stream {stream} has {setting} = {found} but lanes need {expected}: correct the stream's configuration")]
    StreamMisconfigured {
        /// Name of the stream.
        stream: String,
        /// The setting.
        setting: &'static str,
        /// What it is.
        found: String,
        /// What it has to be.
        expected: String,
    },
    /// The stream holds another message at a number than the database: commits were lost after they were published, or
    /// the stream is not this shard's. The lane stands still until it is repaired.
    #[error("LOST_TAIL: stream {stream} at {seq} holds event {found}, the database has {expected}: {advice}")]
    LostTail {
        /// Name of the stream.
        stream: String,
        /// Number at which they differ.
        seq: u64,
        /// Event id in the stream.
        found: String,
        /// Event id in the database, or what it lacks.
        expected: String,
        /// What to do.
        advice: &'static str,
    },
    /// The stream of the present epoch was sealed: a repair of the shard began, here or elsewhere.
    #[error("SEALED: stream {stream} takes no messages any more: a repair of its shard has begun")]
    Sealed {
        /// Name of the stream.
        stream: String,
    },
    /// A repair was begun, or the server under the shard is another one than before: what was committed last may be gone.
    #[error("REPAIR_DUE: the shard of {lane} is being repaired, or its server was replaced")]
    RepairDue {
        /// Name of the lane.
        lane: String,
    },
    /// Another server has taken the lane over: it sealed the stream that this database agrees with to its end. The shard
    /// is marked as moved and takes no changes here.
    #[error(
        "SUPERSEDED: stream {stream} agrees with this database to its end and was sealed by another one: the shard serves \
         elsewhere; point the configuration there, or, if this database is the one to go on with, set the status in its \
         shard_meta to REPAIRING"
    )]
    Superseded {
        /// Name of the stream.
        stream: String,
    },
    /// The shard was moved to another server.
    #[error("MOVED: the shard lives on another server now: point the configuration there")]
    Moved,
    /// The stream ends before the last message that was applied: the broker has lost messages it had acknowledged.
    #[error(
        "REGRESSED: stream {stream} ends at {last} but messages up to {applied} were applied: waiting for its publisher \
         to publish the rest again"
    )]
    Regressed {
        /// Name of the stream.
        stream: String,
        /// Last number in the stream.
        last: u64,
        /// Last number applied.
        applied: u64,
    },
    /// Messages that are due are not in the stream, while later ones are. Nothing past the hole is applied.
    #[error(
        "GAP: stream {stream} has no messages {from}..={to}: they were removed before this projection read them; fill \
         them from the outbox or rebuild the projection"
    )]
    Gap {
        /// Name of the stream.
        stream: String,
        /// First missing number.
        from: u64,
        /// Last missing number.
        to: u64,
    },
    /// Messages that are due are neither in the stream nor in the outbox any more.
    #[error(
        "RETENTION_GAP: neither the stream nor the outbox of {lane} has number {seq} any more: restore the projection \
         from a snapshot that is past it, or rebuild it"
    )]
    RetentionGap {
        /// Name of the lane.
        lane: String,
        /// The number due.
        seq: u64,
    },
    /// The number is not one of that epoch: the shard had lost its change, and went on in a later epoch.
    #[error("EPOCH_CHANGED: {lane} goes on in epoch {} from number {}", .next.epoch, .next.seq)]
    EpochChanged {
        /// Name of the lane.
        lane: String,
        /// Where the next epoch begins.
        next: Offset,
    },
    /// A message without a readable event id: somebody else publishes into the stream.
    #[error(
        "stream {stream} at {seq} holds a message that no publisher of lanes has written: find out who writes there"
    )]
    ForeignMessage {
        /// Name of the stream.
        stream: String,
        /// Its number.
        seq: u64,
    },
    /// The service's code panicked in the middle of a lane.
    #[error("PANICKED: the code of this lane panicked; the log says where; mend it")]
    Panicked,
    /// The outbox gave rows that do not follow one another.
    #[error("the outbox of {lane} gave number {found} where {expected} was due: the sequence has a hole")]
    OutboxHole {
        /// Name of the lane.
        lane: String,
        /// The number due.
        expected: u64,
        /// The number that came.
        found: u64,
    },
}

impl Error {
    /// Wraps a failure of the service's own outbox code.
    pub fn outbox(action: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Outbox { action, source: source.into() }
    }

    pub(crate) fn nats(action: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Nats { action, source: source.into() }
    }

    /// Whether trying again cannot help before a person, or a repair, has acted.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::LostTail { .. }
                | Self::Superseded { .. }
                | Self::ForeignMessage { .. }
                | Self::OutboxHole { .. }
                | Self::RetentionGap { .. }
                | Self::Panicked
        )
    }

    /// The message with its causes on one line, for watermarks and logs.
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
