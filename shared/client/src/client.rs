//! Calls to the like services: to every address behind a name, within a deadline, repeated only where that is safe.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use likewise_proto::command::v1 as command;
use likewise_proto::command::v1::CommandOutcome;
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::convert;
use likewise_proto::query::v1 as query;
use likewise_proto::query::v1::like_query_service_client::LikeQueryServiceClient;
use prost::Message as _;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use tonic_types::StatusExt as _;
use uuid::{NoContext, Timestamp, Uuid};

use crate::channel::{Balanced, Target, open};
use crate::retry::{Budget, Policy, hint};
use crate::session::{Answer, Command, Known};

/// Settings of a client. [`Settings::to`] has defaults for everything but the name.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the services are.
    pub target: Target,
    /// Longest time for one attempt.
    pub attempt_timeout: Duration,
    /// Longest time for a call with all its attempts.
    pub deadline: Duration,
    /// How calls are repeated.
    pub policy: Policy,
}

impl Settings {
    /// Everything behind `authority`, `name:port`.
    #[must_use]
    pub fn to(authority: &str) -> Self {
        Self {
            target: Target {
                authority: authority.to_owned(),
                lookup_every: Duration::from_secs(10),
                connect_timeout: Duration::from_secs(2),
            },
            attempt_timeout: Duration::from_secs(2),
            deadline: Duration::from_secs(10),
            policy: Policy::default(),
        }
    }
}

/// A command without a verdict.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// What became of the command is not known. Send it again with the same operation id; anything else would overtake it.
    #[error("no verdict yet; send the same operation id again: {}", .0.message())]
    Undecided(Box<Status>),
    /// The call itself was wrong: a malformed field, a token that is not accepted. Sending it again helps nobody.
    #[error("the call is wrong: {}", .0.message())]
    Wrong(Box<Status>),
}

struct Inner {
    balanced: Balanced,
    settings: Settings,
    budget: Budget,
    /// What the service's clock is ahead of ours, in milliseconds, as far as it told.
    ahead_ms: AtomicI64,
}

/// A client of the like services. Clones share connections, budget and clock.
#[derive(Clone)]
pub struct LikeClient {
    inner: Arc<Inner>,
}

impl LikeClient {
    /// Looks up the name and connects when first used. Must be called within a Tokio runtime.
    pub async fn connect(settings: Settings) -> Self {
        let balanced = open(settings.target.clone()).await;
        let (budget, ahead_ms) = (Budget::default(), AtomicI64::new(0));
        Self { inner: Arc::new(Inner { balanced, settings, budget, ahead_ms }) }
    }

    /// Draws an operation id, by the service's clock as far as it is known.
    #[must_use]
    pub fn draw(&self) -> String {
        let ahead = time::Duration::milliseconds(self.inner.ahead_ms.load(Ordering::Relaxed));
        let at = OffsetDateTime::now_utc() + ahead;
        let seconds = u64::try_from(at.unix_timestamp()).unwrap_or(0);
        Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, at.nanosecond())).to_string()
    }

    /// Sends a command of the user whom `token` speaks for, until it has a verdict or the deadline has passed.
    ///
    /// # Errors
    /// [`Error::Undecided`] keeps the intent alive: send the same command again.
    pub async fn set_like(
        &self,
        token: &str,
        video_id: &str,
        command: &Command,
        device_id: Option<&str>,
    ) -> Result<Answer, Error> {
        let message = command::SetLikeRequest {
            video_id: video_id.to_owned(),
            desired_state: convert::like_state(command.desired_state).into(),
            operation_id: command.operation_id.clone(),
            base_version: command.base_version,
            device_id: device_id.map(str::to_owned),
            client_sequence: None,
        };
        let answered = self
            .call(Some(token), message, async |channel, request| {
                LikeCommandServiceClient::new(channel).set_like(request).await
            })
            .await;
        match answered {
            Ok(answer) => answer_of(&answer).ok_or_else(|| undecided(&Status::unknown("the answer lacks a part"))),
            Err(failed) => match self.refusal(&failed.status) {
                // An attempt before this one was not answered, and may have been applied.
                Err(Error::Wrong(status)) if failed.is_repeat => Err(Error::Undecided(status)),
                told => told,
            },
        }
    }

    fn refusal(&self, status: &Status) -> Result<Answer, Error> {
        let told = status.get_details_error_info();
        let (reason, metadata) = told.map_or_else(Default::default, |info| (info.reason, info.metadata));
        match reason.as_str() {
            "OPERATION_EXPIRED" => {
                self.learn_clock(metadata.get("server_time").map(String::as_str));
                Ok(Answer::Expired)
            }
            "VIDEO_NOT_FOUND"
            | "VIDEO_GONE"
            | "VIDEO_NOT_VISIBLE"
            | "INTERACTION_BLOCKED"
            | "ACCOUNT_NOT_ACTIVE"
            | "FROZEN" => Ok(Answer::Refused { reason, current: current_of(status) }),
            _ if hint(status).is_some() || status.code() == tonic::Code::ResourceExhausted => Err(undecided(status)),
            // A fault on the other side says nothing of the command.
            _ if status.code() == tonic::Code::Internal => Err(undecided(status)),
            _ => Err(Error::Wrong(Box::new(status.clone()))),
        }
    }

    fn learn_clock(&self, told: Option<&str>) {
        let Some(told) = told.and_then(|told| OffsetDateTime::parse(told, &Rfc3339).ok()) else { return };
        let ahead = (told - OffsetDateTime::now_utc()).whole_milliseconds();
        self.inner.ahead_ms.store(i64::try_from(ahead).unwrap_or(0), Ordering::Relaxed);
    }

    /// What became of an operation; `None` while it has no verdict.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn get_operation(
        &self,
        token: &str,
        operation_id: &str,
    ) -> Result<Option<command::GetOperationResponse>, Box<Status>> {
        let message = command::GetOperationRequest { operation_id: operation_id.to_owned() };
        let found = self.call(Some(token), message, async |channel, request| {
            LikeCommandServiceClient::new(channel).get_operation(request).await
        });
        match found.await {
            Ok(found) => Ok(Some(found)),
            Err(failed) if failed.status.code() == tonic::Code::NotFound => Ok(None),
            Err(failed) => Err(Box::new(failed.status)),
        }
    }

    /// Hearts and counts of up to 100 videos, as the user may see them. No heart is older than the least version asked for, as
    /// long as that version is committed.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn batch_get_likes(
        &self,
        token: &str,
        video_ids: Vec<String>,
        min_relation_versions: HashMap<String, u64>,
        position: Option<String>,
    ) -> Result<Vec<query::MyLike>, Box<Status>> {
        let message = query::BatchGetLikesRequest { video_ids, min_relation_versions, position };
        let answer = self.call(Some(token), message, async |channel, request| {
            LikeQueryServiceClient::new(channel).batch_get_likes(request).await
        });
        answer.await.map(|answer| answer.likes).map_err(|failed| Box::new(failed.status))
    }

    /// Counts of up to 200 videos; without a token where anonymous callers are allowed.
    ///
    /// # Errors
    /// The status of the last attempt.
    pub async fn batch_get_counts(
        &self,
        token: Option<&str>,
        video_ids: Vec<String>,
    ) -> Result<Vec<query::VideoCount>, Box<Status>> {
        let message = query::BatchGetCountsRequest { video_ids, ..query::BatchGetCountsRequest::default() };
        let answer = self.call(token, message, async |channel, request| {
            LikeQueryServiceClient::new(channel).batch_get_counts(request).await
        });
        answer.await.map(|answer| answer.counts).map_err(|failed| Box::new(failed.status))
    }

    /// One call with its attempts. Every call of ours may be made twice: reads change nothing, commands carry their id.
    async fn call<M: Clone, A>(
        &self,
        token: Option<&str>,
        message: M,
        send: impl AsyncFn(Channel, Request<M>) -> Result<Response<A>, Status>,
    ) -> Result<A, Failed> {
        let Settings { attempt_timeout, deadline, policy, .. } = &self.inner.settings;
        let end = Instant::now() + *deadline;
        self.inner.budget.earn();
        for attempt in 0.. {
            let left = end.saturating_duration_since(Instant::now());
            let mut request = Request::new(message.clone());
            request.set_timeout(left.min(*attempt_timeout));
            if let Some(token) = token {
                let value = format!("Bearer {token}").parse();
                let value = value.map_err(|_| Failed::first(Status::unauthenticated("the token is no header")))?;
                request.metadata_mut().insert("authorization", value);
            }
            // The balancer waits for a connection as long as there is none.
            let channel = self.inner.balanced.channel.clone();
            let sent = tokio::time::timeout(left.min(*attempt_timeout), send(channel, request)).await;
            let status = match sent {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => status,
                Err(_) => Status::deadline_exceeded("no answer in time"),
            };
            let failed = |status| Failed { status, is_repeat: attempt > 0 };
            let Some(least) = hint(&status) else { return Err(failed(status)) };
            let pause = policy.pause(attempt, least, rand::random());
            if Instant::now() + pause >= end || !self.inner.budget.take() {
                return Err(failed(status));
            }
            tokio::time::sleep(pause).await;
        }
        unreachable!("attempts end with the deadline")
    }
}

/// A call whose last attempt ended so.
struct Failed {
    status: Status,
    /// Attempts before it ended without an answer.
    is_repeat: bool,
}

impl Failed {
    fn first(status: Status) -> Self {
        Self { status, is_repeat: false }
    }
}

fn undecided(status: &Status) -> Error {
    Error::Undecided(Box::new(status.clone()))
}

/// The relation that a refusal tells of.
fn current_of(status: &Status) -> Option<Known> {
    let details = tonic_types::pb::Status::decode(status.details()).ok()?.details;
    let told = details.iter().find(|detail| detail.type_url.rsplit('/').next() == Some(convert::CURRENT_RELATION))?;
    known(&command::CurrentRelation::decode(told.value.as_slice()).ok()?)
}

fn known(now: &command::CurrentRelation) -> Option<Known> {
    Some(Known { state: convert::parse_like_state(now.state)?, version: now.relation_version })
}

fn answer_of(answer: &command::SetLikeResponse) -> Option<Answer> {
    let current = known(answer.current.as_ref()?)?;
    Some(match answer.operation.as_ref()?.outcome() {
        CommandOutcome::Applied | CommandOutcome::Unchanged => {
            Answer::Settled { current, position: answer.position.clone() }
        }
        CommandOutcome::StaleBase => Answer::Stale { current },
        CommandOutcome::RateLimited => {
            let told = answer.retry_after.and_then(|wait| Duration::try_from(wait).ok());
            Answer::RateLimited { current, retry_after: told.unwrap_or(Duration::from_secs(1)) }
        }
        CommandOutcome::Frozen => Answer::Refused { reason: "FROZEN".to_owned(), current: Some(current) },
        CommandOutcome::AccountNotActive => {
            Answer::Refused { reason: "ACCOUNT_NOT_ACTIVE".to_owned(), current: Some(current) }
        }
        CommandOutcome::Unspecified => return None,
    })
}
