//! Doing acts: one transaction each, in a task of its own, so that a caller who goes away stops nothing half-way.

mod accounts;
mod posts;

use std::sync::Arc;

use likewise_kit::lanes::PublisherHandle;
use likewise_kit::pg::{FailureKind, Pool, failure_kind};
use time::Duration;
use uuid::Uuid;

use crate::act::{Act, Done, Error};
use crate::model::Event;
use crate::publisher;
use crate::store::{self, Txn};

/// Times an act is run again after it lost a race for a lock.
const RETRIES_MAX: usize = 3;

/// Does acts.
#[derive(Clone)]
pub struct Author {
    pool: Pool,
    publisher: Arc<PublisherHandle>,
    grace: Duration,
}

impl Author {
    /// Over a pool on the schema; `publisher` is told of every commit.
    #[must_use]
    pub const fn new(pool: Pool, publisher: Arc<PublisherHandle>, grace: Duration) -> Self {
        Self { pool, publisher, grace }
    }

    /// Does an act, whole or not at all. Doing it again is harmless: what is done already changes nothing.
    ///
    /// # Errors
    /// [`Error`] says whether it was refused or the store did not answer.
    pub async fn perform(&self, act: Act) -> Result<Done, Error> {
        let author = self.clone();
        // The task goes on when the caller is dropped.
        tokio::spawn(async move { author.perform_to_the_end(&act).await }).await.map_err(|_| Error::Stopping)?
    }

    async fn perform_to_the_end(&self, act: &Act) -> Result<Done, Error> {
        let mut retries = 0;
        loop {
            match self.once(act).await {
                Err(Error::Store(store::Error::Statement(error)))
                    if retries < RETRIES_MAX && failure_kind(&error) == FailureKind::Retry =>
                {
                    retries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn once(&self, act: &Act) -> Result<Done, Error> {
        let mut client = self.pool.get().await.map_err(store::Error::from)?;
        let txn = Txn::begin(&mut client).await?;
        let done = self.decide(&txn, act).await?;
        txn.commit().await?;
        self.publisher.wake();
        Ok(done)
    }

    async fn decide(&self, txn: &Txn<'_>, act: &Act) -> Result<Done, Error> {
        match act {
            Act::Register { user, username } => accounts::register(txn, user, username).await,
            Act::SetPrivacy { user, is_private, likes_visible } => {
                accounts::set_privacy(txn, user, *is_private, *likes_visible).await
            }
            Act::SetOwnState { user, to } => accounts::set_own_state(txn, user, *to).await,
            Act::RestoreAccount { user } => accounts::restore(txn, user, self.grace).await,
            Act::SetState { user, to, by } => accounts::set_state(txn, user, *to, by).await,
            Act::SetListable { user, listable, by } => accounts::set_listable(txn, user, *listable, by).await,
            Act::Block { by, other, on } => accounts::block(txn, by, other, *on).await,
            Act::Follow { by, other, on } => accounts::follow(txn, by, other, *on).await,
            Act::CreatePost(new) => posts::create(txn, new).await,
            Act::UpdatePost { author, post, version, changes } => {
                posts::update(txn, author, post, *version, changes).await
            }
            Act::DeletePost { author, post, on } => posts::delete(txn, author, post, *on, self.grace).await,
            Act::Moderate { post, to, by } => posts::moderate(txn, post, *to, by).await,
        }
    }
}

/// Appends the event of a change that was just stored under `seq`.
async fn tell(txn: &Txn<'_>, seq: i64, event: &Event) -> Result<(), Error> {
    let id = Uuid::new_v4();
    let (schema, bytes) = publisher::encode(id, event, txn.now);
    Ok(txn.append(seq, id, schema, &bytes).await?)
}
