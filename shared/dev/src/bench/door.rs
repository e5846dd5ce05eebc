//! Callers of one server: a few HTTP/2 connections, a token per user.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use likewise_devstack::{DevKeys, Process};
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::command::v1::set_like_result::Result as Answer;
use likewise_proto::command::v1::{
    BatchSetLikeRequest, CommandOutcome, OperationVerdict, SetLikeRequest, SetLikeResponse, SetLikeResult,
};
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
    /// Tokens of users, as a gateway passes them on.
    pub(crate) bare_tokens: Arc<Vec<String>>,
    /// The token of a gateway.
    pub(crate) service: MetadataValue<Ascii>,
}

/// Tokens by the number of the user.
type Tokens = Arc<Vec<MetadataValue<Ascii>>>;

/// One command and the answer it must get.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Number of the user.
    pub(crate) user: usize,
    /// The video.
    pub(crate) video: Arc<str>,
    /// The state asked for.
    pub(crate) state: LikeState,
    /// Its operation id.
    pub(crate) operation: Uuid,
    /// The verdict.
    pub(crate) outcome: CommandOutcome,
    /// The verdict is the first one, and nothing changes.
    pub(crate) is_repeat: bool,
}

impl Sent {
    /// A command of the mix.
    pub(crate) fn of(planned: &Planned) -> Self {
        let Planned { kind, user, video, operation } = *planned;
        let (state, outcome) = match kind {
            Kind::New | Kind::Duplicate => (LikeState::Liked, CommandOutcome::Applied),
            Kind::NoChange => (LikeState::Liked, CommandOutcome::Unchanged),
            Kind::Unlike => (LikeState::Unliked, CommandOutcome::Applied),
        };
        let is_repeat = kind == Kind::Duplicate;
        Self { user, video: video_name(video).into(), state, operation, outcome, is_repeat }
    }

    /// `users` users like one video, then all take it back, and so on: every command changes something.
    pub(crate) fn to_one(video: &str, users: usize, count: usize) -> Vec<Self> {
        let video: Arc<str> = video.into();
        let each = (0..count).map(|number| Self {
            user: number % users,
            video: Arc::clone(&video),
            state: if (number / users).is_multiple_of(2) { LikeState::Liked } else { LikeState::Unliked },
            operation: Uuid::now_v7(),
            outcome: CommandOutcome::Applied,
            is_repeat: false,
        });
        each.collect()
    }

    /// The request.
    pub(crate) fn request(&self) -> SetLikeRequest {
        SetLikeRequest {
            video_id: self.video.to_string(),
            desired_state: self.state.into(),
            operation_id: self.operation.to_string(),
            ..SetLikeRequest::default()
        }
    }
}

/// What an answer makes of a command.
pub(crate) fn told(answer: Result<&SetLikeResponse, String>, command: &Sent) -> Told {
    let outcome = match answer {
        Ok(answer) => answer.operation.as_ref().map_or(CommandOutcome::Unspecified, OperationVerdict::outcome),
        Err(error) => return Told::Wrong(error),
    };
    match outcome {
        outcome if outcome != command.outcome => Told::Wrong(format!("{outcome:?} instead of {:?}", command.outcome)),
        CommandOutcome::Applied if !command.is_repeat => Told::Changed,
        _ => Told::Same,
    }
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
    /// Connections to a running process, and a token for each user.
    pub(crate) fn to(process: &Process, keys: &DevKeys, users: usize) -> Result<Self> {
        let channels = (0..CONNECTIONS).map(|_| channel(process.grpc())).collect::<Result<_>>()?;
        let bare_tokens: Vec<String> = (0..users).map(|user| keys.mint_user(&user_name(user))).collect();
        let tokens = bare_tokens.iter().map(|token| bearer(token)).collect::<Result<_>>()?;
        let service = bearer(&keys.mint_service("gateway"))?;
        let (channels, tokens, bare_tokens) = (Arc::new(channels), Arc::new(tokens), Arc::new(bare_tokens));
        Ok(Self { channels, tokens, bare_tokens, service })
    }

    /// Sends commands, one call each.
    pub(crate) async fn send(&self, commands: Vec<Sent>, in_flight: usize) -> Result<Load> {
        let (door, count, commands) = (self.clone(), commands.len(), Arc::new(commands));
        let call = move |caller: usize, number: usize| {
            let (door, commands) = (door.clone(), Arc::clone(&commands));
            async move { door.set_like(caller, &commands[number]).await }
        };
        closed_loop(count, in_flight, call).await
    }

    /// Sends batches, one call each; the commands of a batch belong to one user. The latency is that of a batch.
    pub(crate) async fn send_batches(&self, batches: Vec<Vec<Sent>>, in_flight: usize) -> Result<Load> {
        let commands = batches.iter().map(Vec::len).sum();
        let (door, count, batches) = (self.clone(), batches.len(), Arc::new(batches));
        let call = move |caller: usize, number: usize| {
            let (door, batches) = (door.clone(), Arc::clone(&batches));
            async move { door.batch_set_like(caller, &batches[number]).await }
        };
        closed_loop(count, in_flight, call).await.map(|load| load.counting_commands(commands))
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

    async fn set_like(&self, caller: usize, command: &Sent) -> Told {
        let request = self.request(command.user, command.request());
        let answer = LikeCommandServiceClient::new(self.channel(caller)).set_like(request).await;
        told(answer.as_ref().map(tonic::Response::get_ref).map_err(reason), command)
    }

    async fn batch_set_like(&self, caller: usize, batch: &[Sent]) -> Told {
        let Some(first) = batch.first() else { return Told::Same };
        let items = batch.iter().map(Sent::request).collect();
        let request = self.request(first.user, BatchSetLikeRequest { items });
        let answer = LikeCommandServiceClient::new(self.channel(caller)).batch_set_like(request).await;
        let results = match answer {
            Ok(answer) => answer.into_inner().results,
            Err(status) => return Told::Wrong(reason(&status)),
        };
        if results.len() != batch.len() {
            return Told::Wrong(format!("{} results for {} commands", results.len(), batch.len()));
        }
        let wrong = results.iter().zip(batch).find_map(|(result, command)| match told(verdict(result), command) {
            Told::Wrong(what) => Some(what),
            Told::Changed | Told::Same => None,
        });
        wrong.map_or(Told::Changed, Told::Wrong)
    }

    fn request<T>(&self, user: usize, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(CALL);
        request.metadata_mut().insert("authorization", self.tokens[user].clone());
        request
    }

    /// The connection of a caller.
    pub(crate) fn channel(&self, caller: usize) -> Channel {
        self.channels[caller % self.channels.len()].clone()
    }
}

/// Verdict or error of one command among several.
pub(crate) fn verdict(result: &SetLikeResult) -> Result<&SetLikeResponse, String> {
    match &result.result {
        Some(Answer::Response(response)) => Ok(response),
        Some(Answer::Error(error)) => Err(error.message.clone()),
        None => Err("a result without an answer".to_owned()),
    }
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>> {
    format!("Bearer {token}").parse().context("a token as metadata")
}
