//! The shards as this process sees them: where a user belongs, what waits, and whether the shard serves.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use likewise_domain::hash::HashContract;
use likewise_domain::id::UserId;
use likewise_kit::pg::Pool;
use tokio::sync::Notify;

use crate::intent::{Answer, Intent, Unanswered};
use crate::queue::Queue;

/// One relation shard.
pub(crate) struct Shard {
    pub(crate) number: u16,
    /// Connections for reads, the publisher, the consumer and the maintenance.
    pub(crate) pool: Pool,
    pub(crate) queue: Queue,
    /// Wakes the maintenance before its time.
    pub(crate) maintain: Notify,
    /// Wakes the sweeps before their time.
    pub(crate) sweep: Notify,
    up: AtomicBool,
    problem: Mutex<String>,
}

impl Shard {
    pub(crate) fn new(number: u16, pool: Pool, queue_max: usize) -> Self {
        Self {
            number,
            pool,
            queue: Queue::new(queue_max),
            maintain: Notify::new(),
            sweep: Notify::new(),
            up: AtomicBool::new(false),
            problem: Mutex::new("not connected yet".to_owned()),
        }
    }

    /// Runs a command through the shard's writer. A caller that stops waiting changes nothing: what was sent is decided
    /// without it.
    pub(crate) async fn submit(&self, intent: Intent, patience: Duration) -> Result<Answer, Unanswered> {
        let answer = self.queue.push(intent, Instant::now() + patience)?;
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(answer)) => answer,
            // Nobody answered in time, or the writer went away with the question.
            Err(_) | Ok(Err(_)) => Err(Unanswered::Pending),
        }
    }

    /// Whether the shard was found to be what the configuration says, and its writer has a connection.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    pub(crate) fn come_up(&self) {
        self.up.store(true, Ordering::Release);
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.queue.come_up();
    }

    pub(crate) fn go_down(&self, problem: String) {
        self.up.store(false, Ordering::Release);
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
        self.queue.go_down();
    }

    /// Why the shard does not serve.
    pub(crate) fn readiness(&self) -> Result<(), String> {
        if self.is_up() {
            return Ok(());
        }
        let problem = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        Err(format!("shard {:02}: {problem}", self.number))
    }
}

/// All shards.
pub(crate) struct Shards {
    contract: HashContract,
    shards: Vec<Arc<Shard>>,
}

impl Shards {
    /// `shards` are all slots of the contract, in order.
    pub(crate) fn new(contract: HashContract, shards: Vec<Arc<Shard>>) -> Self {
        Self { contract, shards }
    }

    pub(crate) fn all(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// The shard that owns a user; `None` only if the contract has more slots than there are shards.
    pub(crate) fn of(&self, user: &UserId) -> Option<&Arc<Shard>> {
        self.shards.get(self.number(user))
    }

    /// Number of the shard that owns a user.
    pub(crate) fn number(&self, user: &UserId) -> usize {
        // A slot is below the number of shards, which fits 16 bits.
        usize::try_from(self.contract.slot(&[user.as_str()])).unwrap_or(usize::MAX)
    }
}
