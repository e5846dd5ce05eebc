//! What the tests stand on: a fresh database with one or more shards, connections of a writer, and whole services in
//! this process.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use likewise_command::Settings;
use likewise_command::intent::Intent;
use likewise_command::store::shard;
use likewise_command::store::writer::Connection;
use likewise_devstack::{DevKeys, TestConfig, TestStack};
use likewise_domain::decide::Command;
use likewise_domain::id::{OperationId, UserId, VideoId};
use likewise_domain::operation;
use likewise_domain::relation::{Cause, LikeState};
use likewise_kit::config::{Common, Loader};
use likewise_kit::pg::Servers;
use likewise_kit::run::{self, Context, Program as _};
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::command::v1::{
    GetOperationRequest, GetOperationResponse, OperationVerdict, SetLikeRequest, SetLikeResponse,
};
use likewise_proto::facts::v1::relation_facts_service_client::RelationFactsServiceClient;
use likewise_proto::types::v1::LikeState as WireState;
use tokio_postgres::Client;
use tonic::transport::Channel;
use tonic::{Request, Status};
use uuid::Uuid;

/// A test sends more than a person does.
const UNLIMITED: [(&str, &str); 3] =
    [("COMMAND__ACCOUNT_PER_S", "0"), ("COMMAND__DEVICE_PER_S", "0"), ("COMMAND__ADDRESS_PER_S", "0")];
/// Longest wait for anything; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `look` answers something, and shows what it saw last when it does not.
pub async fn eventually<T, S: Debug>(what: &str, mut look: impl AsyncFnMut() -> Result<T, S>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < end, "{what}: last seen {seen:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads the settings of a test's configuration; `changes` are variables of the environment without their prefix.
pub fn settings(config: &TestConfig, changes: &[(&str, &str)]) -> (Common, Settings) {
    let variables =
        UNLIMITED.iter().chain(changes).map(|(name, value)| (format!("LIKEWISE__{name}"), (*value).to_owned()));
    let mut loader = Loader::new(Some(config.path()), variables);
    let common = Common::load(&mut loader);
    let settings = likewise_command::CommandService::settings(&mut loader);
    loader.finish().expect("a configuration in order");
    (common.expect("common settings"), settings.expect("settings"))
}

/// A fresh database with shard 0 of one, and no service.
pub struct Rig {
    _config: TestConfig,
    pub settings: Settings,
    pub servers: Servers,
    /// The test's own connection to the shard's schema.
    pub sql: Client,
}

impl Rig {
    pub async fn new(changes: &[(&str, &str)]) -> Self {
        let config = TestStack::get().config().await;
        let mut changes = changes.to_vec();
        changes.push(("COMMAND__SHARDS", "1"));
        let (common, settings) = settings(&config, &changes);
        let servers = Servers::new(&common.postgres, "test");
        shard::prepare(&servers, &settings, 0).await.expect("prepared");
        let sql = servers.dedicated("main", &shard::schema(0)).await.expect("connected");
        Self { _config: config, settings, servers, sql }
    }

    pub async fn connection(&self) -> Connection {
        shard::open(&self.servers, &self.settings, 0).await.expect("a writer's connection")
    }

    pub async fn count(&self, of: &str) -> i64 {
        count(&self.sql, of).await
    }
}

/// `select count(*) from <of>`.
pub async fn count(sql: &Client, of: &str) -> i64 {
    sql.query_one(&format!("select count(*) from {of}"), &[]).await.expect("counted").get(0)
}

/// Sessions that wait for an advisory lock in this database.
pub async fn waiting_for_lock(sql: &Client) -> i64 {
    let of = "pg_locks where locktype = 'advisory' and not granted \
              and database = (select oid from pg_database where datname = current_database())";
    count(sql, of).await
}

/// Takes a shard's lock in a transaction of `sql`; `commit` or `rollback` lets it go.
pub async fn hold_lock(sql: &Client, shard: u16) {
    sql.batch_execute("begin").await.expect("begun");
    let class = likewise_command::store::lock::SHARD;
    sql.execute("select pg_advisory_xact_lock($1, $2)", &[&class, &i32::from(shard)]).await.expect("locked");
}

/// A dated operation id.
pub fn fresh_id() -> String {
    Uuid::now_v7().to_string()
}

pub fn user(name: &str) -> UserId {
    UserId::parse(name).expect("an id")
}

pub fn intent(user: &str, operation: &str, video: &str, desired_state: LikeState) -> Intent {
    let operation_id = OperationId::parse(operation).expect("an id");
    Intent {
        user_id: self::user(user),
        command: Command {
            video_id: VideoId::parse(video).expect("an id"),
            desired_state,
            dated: operation::dated(&operation_id),
            base_version: None,
            refusal: None,
            cause: Cause::User,
        },
        operation_id,
        client_sequence: None,
        device_hash: None,
    }
}

/// A whole service in this process.
pub struct Running {
    pub context: Context,
    pub channel: Channel,
    served: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Starts it on `config` with changed settings, and waits until it answers.
    pub async fn start(config: &TestConfig, changes: &[(&str, &str)]) -> Self {
        Self::try_start(config, changes).await.expect("started")
    }

    pub async fn try_start(
        config: &TestConfig,
        changes: &[(&str, &str)],
    ) -> Result<Self, likewise_command::StartError> {
        let (common, settings) = settings(config, changes);
        let bound = run::bind(&common.server).await.expect("bound");
        let endpoint = bound.own_endpoint();
        let context = Context::new(common, "command").await.expect("a context");
        let service = likewise_command::start(context.clone(), settings).await?;
        let serving = context.clone();
        let served = tokio::spawn(async move {
            run::serve(serving, bound, vec![service]).await.expect("served");
        });
        let channel = likewise_kit::clients::channel(&endpoint).expect("an endpoint");
        Ok(Self { context, channel, served })
    }

    /// Ends it in order.
    pub async fn stop(self) {
        self.context.draining.cancel();
        self.served.await.expect("ended in order");
    }

    pub fn as_user(&self, user: &str) -> User {
        User { channel: self.channel.clone(), token: keys().mint_user(user) }
    }

    pub fn facts(&self) -> RelationFactsServiceClient<Channel> {
        RelationFactsServiceClient::new(self.channel.clone())
    }
}

pub fn keys() -> &'static DevKeys {
    TestStack::get().keys()
}

/// A request that carries a token.
pub fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
    request
}

/// A user who calls the service.
#[derive(Clone)]
pub struct User {
    pub channel: Channel,
    pub token: String,
}

impl User {
    pub async fn send(&self, message: SetLikeRequest) -> Result<SetLikeResponse, Status> {
        let mut client = LikeCommandServiceClient::new(self.channel.clone());
        client.set_like(with_token(message, &self.token)).await.map(tonic::Response::into_inner)
    }

    pub async fn set(&self, operation: &str, video: &str, state: WireState) -> Result<SetLikeResponse, Status> {
        self.send(request(operation, video, state)).await
    }

    pub async fn like(&self, operation: &str, video: &str) -> SetLikeResponse {
        self.set(operation, video, WireState::Liked).await.expect("an answer")
    }

    pub async fn unlike(&self, operation: &str, video: &str) -> SetLikeResponse {
        self.set(operation, video, WireState::Unliked).await.expect("an answer")
    }

    pub async fn operation(&self, operation: &str) -> Result<GetOperationResponse, Status> {
        let mut client = LikeCommandServiceClient::new(self.channel.clone());
        let message = GetOperationRequest { operation_id: operation.to_owned() };
        client.get_operation(with_token(message, &self.token)).await.map(tonic::Response::into_inner)
    }
}

pub fn request(operation: &str, video: &str, state: WireState) -> SetLikeRequest {
    SetLikeRequest {
        video_id: video.to_owned(),
        desired_state: state.into(),
        operation_id: operation.to_owned(),
        ..SetLikeRequest::default()
    }
}

/// `APPLIED LIKED v3, now UNLIKED v4`: verdict and present state in one notation.
pub fn told(response: &SetLikeResponse) -> String {
    let current = response.current.as_ref().expect("the relation now");
    let operation = verdict(response.operation.as_ref().expect("a verdict"));
    format!("{operation}, now {} v{}", name(current.state()), current.relation_version)
}

/// `APPLIED LIKED v3`.
pub fn verdict(verdict: &OperationVerdict) -> String {
    let outcome = verdict.outcome().as_str_name().trim_start_matches("COMMAND_OUTCOME_");
    format!("{outcome} {} v{}", name(verdict.state()), verdict.relation_version)
}

fn name(state: WireState) -> &'static str {
    state.as_str_name().trim_start_matches("LIKE_STATE_")
}

/// `ALREADY_EXISTS OPERATION_ID_REUSED`: code and reason of an error.
pub fn refusal<T: Debug>(answer: Result<T, Status>) -> String {
    let status = answer.expect_err("a refusal");
    let reason = likewise_kit::errors::reason(&status).unwrap_or_default();
    format!("{:?} {reason}", status.code())
}
