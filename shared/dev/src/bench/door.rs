//! Callers of one server: a few HTTP/2 connections, a token per user.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use likewise_devstack::{DevKeys, Process};
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::command::v1::{CommandOutcome, SetLikeRequest};
use likewise_proto::types::v1::LikeState;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use uuid::Uuid;

use super::load::{Load, Told, closed_loop};
use super::mix::{Kind, Planned};
use crate::site::{channel, reason};

/// HTTP/2 connections to one server.
pub(crate) const CONNECTIONS: usize = 4;
/// Deadline of a call.
const CALL: Duration = Duration::from_secs(10);

/// What is called how by whom.
#[derive(Clone)]
pub(crate) struct Door {
    channels: Arc<Vec<Channel>>,
    tokens: Tokens,
}

/// Tokens by the number of the user.
pub(crate) type Tokens = Arc<Vec<MetadataValue<Ascii>>>;

/// Mints a token for each user.
pub(crate) fn tokens(keys: &DevKeys, users: usize) -> Result<Tokens> {
    let token = |user| format!("Bearer {}", keys.mint_user(&user_name(user))).parse().context("a token as metadata");
    Ok(Arc::new((0..users).map(token).collect::<Result<_>>()?))
}

/// Name of a user.
pub(crate) fn user_name(user: usize) -> String {
    format!("user-{user:06}")
}

/// Name of a video.
pub(crate) fn video_name(video: usize) -> String {
    format!("video-{video:06}")
}

impl Door {
    /// Connections to a running process.
    pub(crate) fn to(process: &Process, tokens: &Tokens) -> Result<Self> {
        let channels = (0..CONNECTIONS).map(|_| channel(process.grpc())).collect::<Result<_>>()?;
        Ok(Self { channels: Arc::new(channels), tokens: Arc::clone(tokens) })
    }

    /// Sends the mix.
    pub(crate) async fn send(&self, planned: Vec<Planned>, in_flight: usize) -> Result<Load> {
        let (door, count, planned) = (self.clone(), planned.len(), Arc::new(planned));
        let call = move |caller: usize, number: usize| {
            let (door, Planned { kind, user, video, operation }) = (door.clone(), planned[number]);
            let (state, outcome) = match kind {
                Kind::New | Kind::Duplicate => (LikeState::Liked, CommandOutcome::Applied),
                Kind::NoChange => (LikeState::Liked, CommandOutcome::Unchanged),
                Kind::Unlike => (LikeState::Unliked, CommandOutcome::Applied),
            };
            async move {
                let told = door.set_like(caller, user, video_name(video), state, operation, outcome).await;
                // The verdict of a repeated command is the first one, and nothing changed.
                if kind == Kind::Duplicate && matches!(told, Told::Changed) { Told::Same } else { told }
            }
        };
        closed_loop(count, in_flight, call).await
    }

    /// All users like one video, then all take it back, and so on: every command changes something.
    pub(crate) async fn send_to_one(&self, video: &str, count: usize, in_flight: usize) -> Result<Load> {
        let (door, video, users) = (self.clone(), Arc::<str>::from(video), self.tokens.len());
        let call = move |caller: usize, number: usize| {
            let (door, video) = (door.clone(), video.to_string());
            let state = if (number / users).is_multiple_of(2) { LikeState::Liked } else { LikeState::Unliked };
            async move {
                let (user, operation) = (number % users, Uuid::now_v7());
                door.set_like(caller, user, video, state, operation, CommandOutcome::Applied).await
            }
        };
        closed_loop(count, in_flight, call).await
    }

    /// Calls that do nothing: health checks.
    pub(crate) async fn echo(&self, count: usize, in_flight: usize) -> Result<Load> {
        let door = self.clone();
        let call = move |caller: usize, _| {
            let mut client = HealthClient::new(door.channel(caller));
            async move {
                let mut request = Request::new(HealthCheckRequest::default());
                request.set_timeout(CALL);
                match client.check(request).await {
                    Ok(_) => Told::Same,
                    Err(status) => Told::Wrong(reason(&status)),
                }
            }
        };
        closed_loop(count, in_flight, call).await
    }

    async fn set_like(
        &self,
        caller: usize,
        user: usize,
        video_id: String,
        state: LikeState,
        operation: Uuid,
        expected: CommandOutcome,
    ) -> Told {
        let operation_id = operation.to_string();
        let message =
            SetLikeRequest { video_id, desired_state: state.into(), operation_id, ..SetLikeRequest::default() };
        let mut request = Request::new(message);
        request.set_timeout(CALL);
        request.metadata_mut().insert("authorization", self.tokens[user].clone());
        let answer = LikeCommandServiceClient::new(self.channel(caller)).set_like(request).await;
        let verdict = match answer {
            Ok(answer) => answer.into_inner().operation.unwrap_or_default(),
            Err(status) => return Told::Wrong(reason(&status)),
        };
        match verdict.outcome() {
            outcome if outcome != expected => Told::Wrong(format!("{outcome:?} instead of {expected:?}")),
            CommandOutcome::Applied => Told::Changed,
            _ => Told::Same,
        }
    }

    fn channel(&self, caller: usize) -> Channel {
        self.channels[caller % self.channels.len()].clone()
    }
}
