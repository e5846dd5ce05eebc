//! The writer of one shard: takes what waits, runs it as one transaction, tells everybody what became of it.
//!
//! Promises: one batch at a time, in the order of the queue; a batch whose connection was lost is run again with the same
//! ids before anything that came after it, until it has a verdict, because a look-up that finds nothing would prove
//! nothing: the old server process may still commit it. A command the database rejects fails alone.
//!
//! Never: waits for a batch to fill, or holds back an answer that is committed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use likewise_domain::decide::Rules;
use likewise_kit::pg::Servers;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::shards::Shard;
use crate::config::Settings;
use crate::intent::{Answer, Intent, Unanswered};
use crate::metrics::WriterMetrics;
use crate::queue::Waiting;
use crate::store::writer::{Connection, Failure};
use crate::store::{self, shard};

/// How often an idle writer looks whether its connection is still there.
const IDLE_CHECK: Duration = Duration::from_secs(1);
/// Lost races of one batch before its callers are sent away. With the shard's lock there are none but lock time-outs.
const CONFLICTS_MAX: u32 = 10;
/// Attempts on a server that answers and refuses, before the callers are sent away.
const REFUSALS_MAX: u32 = 3;

/// What a writer works with.
pub(crate) struct Writer {
    pub(crate) shard: Arc<Shard>,
    pub(crate) servers: Servers,
    pub(crate) settings: Arc<Settings>,
    pub(crate) rules: Rules,
    /// Transactions at once on the shard's server; more of them than cores buy nothing.
    pub(crate) flights: Arc<Semaphore>,
    /// Called after each commit.
    pub(crate) committed: Box<dyn Fn() + Send + Sync>,
    /// Called on every new connection, accepted or not: the server may have lost commits, which the publisher finds out.
    pub(crate) doubt: Box<dyn Fn() + Send + Sync>,
    pub(crate) metrics: WriterMetrics,
    pub(crate) stop: CancellationToken,
    /// Asks the process to end.
    pub(crate) draining: CancellationToken,
    pub(crate) link: Link,
}

/// The writer's connection.
#[derive(Default)]
pub(crate) struct Link {
    connection: Option<Connection>,
    /// The schema was brought up to date by this process.
    prepared: bool,
}

/// Why a batch has no answers after all.
enum Unsettled {
    /// The database rejects something in it.
    Rejected(String),
    /// Its callers are told to send the same ids again.
    GivenUp(Unanswered),
}

impl Writer {
    /// First attempt to connect, before the process serves.
    ///
    /// # Errors
    /// [`store::Error::is_fatal`] ones; a server that is away is tried again by [`run`](Self::run).
    pub(crate) async fn bring_up(&mut self) -> Result<(), store::Error> {
        match self.connect().await {
            Ok(connection) => {
                self.link.connection = Some(connection);
                self.shard.come_up();
                Ok(())
            }
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => {
                tracing::error!(shard = self.shard.number, error = error.chain(), "the shard is away");
                self.shard.go_down(error.chain());
                Ok(())
            }
        }
    }

    /// Writes until the process stops and nothing waits any more.
    pub(crate) async fn run(mut self) {
        while let Some(permit) = self.next_flight().await {
            let batch = self.shard.queue.take(self.settings.batch_max, Instant::now());
            self.metrics.taken(self.shard.number, self.shard.queue.len());
            if !batch.is_empty() {
                self.settle(batch, permit).await;
            }
        }
        self.shard.queue.close();
        self.shard.queue.go_down();
    }

    /// Waits until something waits, there is a connection and the server has room for a transaction.
    async fn next_flight(&mut self) -> Option<OwnedSemaphorePermit> {
        loop {
            self.connected().await?;
            let stopping = self.stop.is_cancelled();
            tokio::select! {
                () = self.stop.cancelled(), if !stopping => self.shard.queue.close(),
                waiting = tokio::time::timeout(IDLE_CHECK, self.shard.queue.wait()) => match waiting {
                    Ok(true) => return Arc::clone(&self.flights).acquire_owned().await.ok(),
                    Ok(false) => return None,
                    Err(_) => {}
                },
            }
        }
    }

    /// Finds a verdict for every command of a batch.
    async fn settle(&mut self, batch: Vec<Waiting>, permit: OwnedSemaphorePermit) {
        let intents: Vec<&Intent> = batch.iter().map(|waiting| &waiting.intent).collect();
        match self.verdicts(&intents, Some(permit)).await {
            Ok(answers) => {
                for (waiting, answer) in batch.into_iter().zip(answers) {
                    let _ = waiting.reply.send(Ok(answer));
                }
            }
            Err(Unsettled::GivenUp(unanswered)) => {
                for waiting in batch {
                    let _ = waiting.reply.send(Err(unanswered));
                }
            }
            Err(Unsettled::Rejected(reason)) => {
                tracing::warn!(shard = self.shard.number, commands = batch.len(), reason, "a batch was rejected");
                for waiting in batch {
                    let answer = self.alone(&waiting.intent).await;
                    let _ = waiting.reply.send(answer);
                }
            }
        }
    }

    /// Runs one command of a rejected batch by itself.
    async fn alone(&mut self, intent: &Intent) -> Result<Answer, Unanswered> {
        match self.verdicts(&[intent], None).await {
            Ok(answers) => answers.first().copied().ok_or(Unanswered::Failed),
            Err(Unsettled::GivenUp(unanswered)) => Err(unanswered),
            Err(Unsettled::Rejected(reason)) => {
                self.metrics.command_rejected();
                let operation = &intent.operation_id;
                tracing::error!(shard = self.shard.number, %operation, reason, "the database rejected a command");
                Err(Unanswered::Failed)
            }
        }
    }

    async fn verdicts(
        &mut self,
        intents: &[&Intent],
        mut permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Vec<Answer>, Unsettled> {
        let (mut conflicts, mut refusals) = (0, 0);
        // What a lost connection was told may still be committed.
        let mut given_up = Unanswered::Unavailable;
        loop {
            if permit.is_none() {
                permit = Arc::clone(&self.flights).acquire_owned().await.ok();
            }
            let rules = self.rules;
            let Some(connection) = self.connected().await else {
                return Err(Unsettled::GivenUp(Unanswered::Pending));
            };
            let began = Instant::now();
            let failure = match connection.apply(intents, &rules).await {
                Ok(answers) => {
                    (self.committed)();
                    self.metrics.flown(&answers, began.elapsed());
                    return Ok(answers);
                }
                Err(failure) => failure,
            };
            match failure {
                Failure::Rejected(reason) => return Err(Unsettled::Rejected(reason)),
                Failure::Conflict(reason) => {
                    conflicts += 1;
                    self.metrics.conflict();
                    if conflicts >= CONFLICTS_MAX {
                        tracing::error!(shard = self.shard.number, reason, "a batch lost every race");
                        return Err(Unsettled::GivenUp(given_up));
                    }
                }
                Failure::Lost(reason) => {
                    tracing::warn!(shard = self.shard.number, reason, "the writer lost its connection");
                    self.metrics.connection_lost();
                    given_up = Unanswered::Pending;
                    self.link.connection = None;
                    // Others on this server need not wait for our connection.
                    permit = None;
                }
                Failure::Refused(reason) => {
                    refusals += 1;
                    tracing::error!(shard = self.shard.number, reason, "the server refuses a batch");
                    self.shard.maintain.notify_one();
                    if refusals >= REFUSALS_MAX {
                        return Err(Unsettled::GivenUp(given_up));
                    }
                    permit = None;
                    tokio::time::sleep(Duration::from_millis(self.settings.reconnect_ms_min)).await;
                }
            }
        }
    }

    /// The connection, made again with growing pauses when it is gone; `None` when the process stops before that.
    async fn connected(&mut self) -> Option<&Connection> {
        if self.link.connection.as_ref().is_some_and(Connection::is_closed) {
            self.link.connection = None;
        }
        let mut pause = self.settings.reconnect_ms_min;
        while self.link.connection.is_none() {
            let connected = self.connect().await;
            if matches!(connected, Ok(_) | Err(store::Error::NotServing(_))) {
                (self.doubt)();
            }
            match connected {
                Ok(connection) => {
                    self.link.connection = Some(connection);
                    self.shard.come_up();
                    tracing::info!(shard = self.shard.number, "the writer is connected");
                }
                Err(error) => {
                    tracing::warn!(shard = self.shard.number, error = error.chain(), "the writer is not connected");
                    self.shard.go_down(error.chain());
                    if error.is_fatal() {
                        self.draining.cancel();
                    }
                    let stopped = tokio::time::timeout(Duration::from_millis(pause), self.stop.cancelled()).await;
                    if stopped.is_ok() {
                        return None;
                    }
                    pause = (pause * 2).min(self.settings.reconnect_ms_max);
                }
            }
        }
        self.link.connection.as_ref()
    }

    async fn connect(&mut self) -> Result<Connection, store::Error> {
        if !self.link.prepared {
            shard::prepare(&self.servers, &self.settings, self.shard.number).await?;
            self.link.prepared = true;
        }
        shard::open(&self.servers, &self.settings, self.shard.number).await
    }
}
