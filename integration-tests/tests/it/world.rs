//! A standalone process on a fresh database, and the people who use it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use likewise_devstack::{DevKeys, Line, Process, Stack, TestConfig, TestStack};
use likewise_proto::command::v1 as command;
use likewise_proto::command::v1::like_command_service_client::LikeCommandServiceClient;
use likewise_proto::content::v1 as content;
use likewise_proto::content::v1::post_service_client::PostServiceClient;
use likewise_proto::content::v1::user_service_client::UserServiceClient;
use likewise_proto::query::v1 as query;
use likewise_proto::query::v1::like_query_service_client::LikeQueryServiceClient;
use likewise_proto::reconciliation::v1 as reconciliation;
use likewise_proto::reconciliation::v1::operations_service_client::OperationsServiceClient;
use likewise_proto::types::v1::LikeState;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_types::StatusExt;

/// How long anything may take to become true before a test gives up and prints what it saw last.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long one call may take.
const CALL: Duration = Duration::from_secs(10);

/// A fresh operation id.
pub fn operation() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Outcome and version of the verdict.
pub fn outcome(answer: &command::SetLikeResponse) -> (command::CommandOutcome, u64) {
    let verdict = answer.operation.as_ref().expect("an answer has a verdict");
    (verdict.outcome(), verdict.relation_version)
}

/// Waits until `attempt` succeeds; on time-out says what it said last.
pub async fn eventually<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(last) => assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}; last seen: {last}"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}

/// Settings of every process here: a killed owner of a lane is replaced soon, and few users send what many would.
const SOON: [(&str, &str); 4] = [
    ("LIKEWISE__LANES__LEASE_TTL_MS", "1000"),
    ("LIKEWISE__COUNTER__LEASE_TTL_MS", "1000"),
    ("LIKEWISE__COMMAND__ACCOUNT_PER_S", "0"),
    ("LIKEWISE__COMMAND__ADDRESS_PER_S", "0"),
];

/// Settings on a fresh database.
pub async fn config() -> TestConfig {
    TestStack::get().config().await
}

async fn started(config: &TestConfig, environment: &[(&str, &str)]) -> Process {
    let environment = [SOON.as_slice(), environment].concat();
    Process::standalone(config, &environment).await.expect("standalone starts")
}

/// One standalone process with its stores.
pub struct World {
    pub config: TestConfig,
    pub process: Process,
    channel: Channel,
    /// The relations live on the second server, and everything else on the first.
    facts_apart: bool,
}

impl World {
    /// Starts the process and waits until it is ready.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts the process on a line to PostgreSQL that can misbehave.
    pub async fn start_behind_a_line() -> (Self, Line) {
        let config = config().await;
        let (line, dsn) = detour(config.database.dsn()).await;
        let process = started(&config, &[("LIKEWISE__POSTGRES__SERVERS__MAIN", &dsn)]).await;
        let channel = connect(&process);
        (Self { config, process, channel, facts_apart: false }, line)
    }

    /// Starts the process on lines to its stores that can misbehave.
    pub async fn start_behind_lines() -> (Self, Lines) {
        let config = config().await;
        let (postgres, dsn) = detour(config.database.dsn()).await;
        let (nats, nats_url) = detour(&config.address.nats).await;
        let (redis, redis_url) = detour(&config.address.redis).await;
        let detours = [
            ("LIKEWISE__POSTGRES__SERVERS__MAIN", dsn.as_str()),
            ("LIKEWISE__NATS__URL", &nats_url),
            ("LIKEWISE__REDIS__URL", &redis_url),
        ];
        let process = started(&config, &detours).await;
        let channel = connect(&process);
        (Self { config, process, channel, facts_apart: false }, Lines { postgres, nats, redis })
    }

    /// Starts the process with settings of its own, in the environment's notation.
    pub async fn start_with(environment: &[(&str, &str)]) -> Self {
        let config = config().await;
        let process = started(&config, environment).await;
        let channel = connect(&process);
        Self { config, process, channel, facts_apart: false }
    }

    /// Starts the process on a stack of the test's own, whose keys sign its tokens.
    pub async fn start_on(stack: &Stack, environment: &[(&str, &str)]) -> Self {
        let config = TestStack::of(stack).config().await;
        let process = started(&config, environment).await;
        let channel = connect(&process);
        Self { config, process, channel, facts_apart: false }
    }

    /// The same with the relations on the second server of the stack, and everything else on the first.
    pub async fn start_with_facts_apart(stack: &Stack) -> Self {
        let apart = [("LIKEWISE__COMMAND__SHARD_SERVERS", "[\"second\"]")];
        Self { facts_apart: true, ..Self::start_on(stack, &apart).await }
    }

    /// Ends the process with SIGKILL, if it is still there, and starts another on the same stores.
    pub async fn restart_after_kill(&mut self, environment: &[(&str, &str)]) {
        self.process.kill().await;
        self.process = started(&self.config, environment).await;
        self.channel = connect(&self.process);
    }

    /// Another process on the same stores.
    pub async fn twin(&self) -> Twin {
        let process = started(&self.config, &[]).await;
        Twin { channel: connect(&process), _process: process }
    }

    /// A caller with any token, or none.
    pub fn with_token(&self, name: &str, token: Option<&str>) -> Caller {
        Caller { name: name.to_owned(), token: token.map(str::to_owned), channel: self.channel.clone() }
    }

    /// A user whose account is open.
    pub async fn user(&self, name: &str) -> Caller {
        let caller = self.with_token(name, Some(&self.keys().mint_user(name)));
        caller.register().await;
        caller
    }

    /// The same person, speaking to the process that runs now.
    pub fn again(&self, caller: &Caller) -> Caller {
        Caller { channel: self.channel.clone(), ..caller.clone() }
    }

    /// A published, public video; answers its author.
    pub async fn video(&self, author: &str, video: &str) -> Caller {
        let caller = self.user(author).await;
        self.publish(&caller, video).await;
        caller
    }

    /// A published, public video of an author.
    pub async fn publish(&self, caller: &Caller, video: &str) {
        let request = content::CreateRequest { post_id: video.to_owned(), ..Default::default() };
        PostServiceClient::new(self.channel.clone())
            .create(caller.request(request))
            .await
            .expect("the video is created");
    }

    /// Keys that sign the tokens of this world.
    fn keys(&self) -> DevKeys {
        DevKeys::open(&self.config.address.keys()).expect("the keys of a started stack")
    }

    pub fn service_token(&self, name: &str) -> String {
        self.keys().mint_service(name)
    }

    pub fn operator_token(&self, roles: &[&str]) -> String {
        self.keys().mint_operator("olga", roles)
    }

    /// Tokens that must not pass: what is wrong, the token, the reason.
    pub fn bad_tokens(&self) -> Vec<(&'static str, Option<String>, &'static str)> {
        let keys = self.keys();
        vec![
            ("none", None, "TOKEN_MISSING"),
            ("garbage", Some("not.a.token".to_owned()), "TOKEN_INVALID"),
            ("expired", Some(keys.mint_expired("lin")), "TOKEN_EXPIRED"),
            ("signed by a stranger", Some(keys.mint_forged("lin")), "TOKEN_INVALID"),
            ("for another audience", Some(keys.mint_for_audience("lin", "elsewhere")), "TOKEN_INVALID"),
        ]
    }

    /// The stable reason of an error.
    pub fn reason(&self, status: &Status) -> String {
        status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
    }

    /// The metadata of an error.
    pub fn metadata(&self, status: &Status) -> BTreeMap<String, String> {
        status.get_details_error_info().map(|info| info.metadata.into_iter().collect()).unwrap_or_default()
    }

    /// The fields an error names.
    pub fn fields(&self, status: &Status) -> Vec<String> {
        let details = status.get_details_bad_request().map(|bad| bad.field_violations).unwrap_or_default();
        details.into_iter().map(|violation| violation.field).collect()
    }

    /// A connection to the database that all services here share.
    pub async fn sql(&self) -> tokio_postgres::Client {
        self.config.database.connect().await.expect("the database answers")
    }

    /// A connection to the database that holds the facts.
    pub async fn facts(&self) -> tokio_postgres::Client {
        let database = self.config.others.first().filter(|_| self.facts_apart).unwrap_or(&self.config.database);
        database.connect().await.expect("the database answers")
    }

    /// The lag board.
    pub async fn board(&self) -> Result<reconciliation::GetLagBoardResponse, Status> {
        let operator = self.with_token("olga", Some(&self.operator_token(&["viewer"])));
        let request = operator.request(reconciliation::GetLagBoardRequest {});
        Ok(OperationsServiceClient::new(self.channel.clone()).get_lag_board(request).await?.into_inner())
    }

    /// Waits until everything committed is published, consumed by every projection, and covered by display counts.
    pub async fn settled(&self) {
        eventually("every lane is consumed", async || {
            let board = self.board().await.map_err(|status| format!("{status:?}"))?;
            let behind = board.lanes.iter().any(|lane| {
                lane.committed_seq.is_none()
                    || lane.published_seq != lane.committed_seq
                    || lane.projections.is_empty()
                    || lane.projections.iter().any(|row| row.lag() > 0 || row.next_offset != lane.committed_seq() + 1)
            });
            if behind || !board.unanswered.is_empty() || board.lanes.len() < 5 {
                return Err(format!("{board:?}"));
            }
            Ok(())
        })
        .await;
        self.covered().await;
    }

    /// Waits until the aggregator covers what the lanes hold now.
    async fn covered(&self) {
        use likewise_proto::counter::v1::GetProgressRequest;
        use likewise_proto::counter::v1::count_service_client::CountServiceClient;

        let board = self.board().await.expect("the board answers");
        let service = self.with_token("query", Some(&self.service_token("query")));
        eventually("display counts cover every lane", async || {
            let progress = CountServiceClient::new(self.channel.clone())
                .get_progress(service.request(GetProgressRequest {}))
                .await
                .map_err(|status| format!("{status:?}"))?
                .into_inner()
                .progress
                .ok_or("no progress")?;
            for lane in board.lanes.iter().filter(|lane| lane.lane.starts_with("rel-") && lane.committed_seq() > 0) {
                let next =
                    progress.next_offsets.iter().find(|offset| offset.lane == lane.lane).map(|offset| offset.seq);
                if next.is_none_or(|next| next <= lane.committed_seq()) {
                    return Err(format!("{} at {next:?}, committed {}", lane.lane, lane.committed_seq()));
                }
            }
            Ok(())
        })
        .await;
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }
}

/// Lines to the stores of a world.
pub struct Lines {
    pub postgres: Line,
    pub nats: Line,
    pub redis: Line,
}

/// A line to the server of an address, and the address that leads over it.
async fn detour(address: &str) -> (Line, String) {
    let (scheme, rest) = address.split_once("://").expect("an address with a scheme");
    let (user, rest) = rest.split_once('@').map_or(("", rest), |(user, rest)| (user, rest));
    let (target, path) = rest.split_once('/').map_or((rest, ""), |(target, path)| (target, path));
    let line = Line::lay(target).await.expect("a port");
    let at = if user.is_empty() { String::new() } else { format!("{user}@") };
    let through = format!("{scheme}://{at}127.0.0.1:{}/{path}", line.port());
    (line, through.trim_end_matches('/').to_owned())
}

/// A second process on the stores of a world.
pub struct Twin {
    channel: Channel,
    _process: Process,
}

impl Twin {
    /// The same person, speaking to this process.
    pub fn again(&self, caller: &Caller) -> Caller {
        Caller { channel: self.channel.clone(), ..caller.clone() }
    }
}

fn connect(process: &Process) -> Channel {
    Channel::from_shared(format!("http://{}", process.grpc())).expect("an address").connect_lazy()
}

/// Somebody with a token.
#[derive(Clone)]
pub struct Caller {
    pub name: String,
    token: Option<String>,
    channel: Channel,
}

impl Caller {
    /// A request with this caller's token and a deadline.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(CALL);
        if let Some(token) = &self.token {
            let value = format!("Bearer {token}").parse().expect("a token is ASCII");
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    pub async fn register(&self) {
        let request = content::RegisterRequest { username: self.name.clone() };
        UserServiceClient::new(self.channel.clone())
            .register(self.request(request))
            .await
            .unwrap_or_else(|status| panic!("{} registers: {status:?}", self.name));
    }

    pub async fn delete_account(&self) {
        UserServiceClient::new(self.channel.clone())
            .delete(self.request(content::DeleteRequest {}))
            .await
            .expect("the account is deleted");
    }

    pub async fn delete_video(&self, video: &str) {
        PostServiceClient::new(self.channel.clone())
            .delete_post(self.request(content::DeletePostRequest { post_id: video.to_owned() }))
            .await
            .expect("the video is deleted");
    }

    pub async fn set(
        &self,
        video: &str,
        state: LikeState,
        operation: &str,
        base: Option<u64>,
    ) -> Result<command::SetLikeResponse, Status> {
        let message = command::SetLikeRequest {
            video_id: video.to_owned(),
            desired_state: state.into(),
            operation_id: operation.to_owned(),
            base_version: base,
            device_id: None,
            client_sequence: None,
        };
        let mut client = LikeCommandServiceClient::new(self.channel.clone());
        Ok(client.set_like(self.request(message)).await?.into_inner())
    }

    /// A command with any number as its state.
    pub async fn set_raw(&self, video: &str, state: i32, operation: &str) -> Result<command::SetLikeResponse, Status> {
        let message = command::SetLikeRequest {
            video_id: video.to_owned(),
            desired_state: state,
            operation_id: operation.to_owned(),
            ..Default::default()
        };
        let mut client = LikeCommandServiceClient::new(self.channel.clone());
        Ok(client.set_like(self.request(message)).await?.into_inner())
    }

    pub async fn operation(&self, id: &str) -> Result<command::GetOperationResponse, Status> {
        let message = command::GetOperationRequest { operation_id: id.to_owned() };
        let mut client = LikeCommandServiceClient::new(self.channel.clone());
        Ok(client.get_operation(self.request(message)).await?.into_inner())
    }

    pub async fn try_likes(&self, videos: &[&str]) -> Result<Vec<query::MyLike>, Status> {
        self.page(videos, query::BatchGetLikesRequest::default()).await
    }

    /// The page, not below these versions.
    pub async fn likes_since(
        &self,
        videos: &[&str],
        versions: &BTreeMap<String, u64>,
    ) -> Result<Vec<query::MyLike>, Status> {
        let min_relation_versions = versions.iter().map(|(video, version)| (video.clone(), *version)).collect();
        self.page(videos, query::BatchGetLikesRequest { min_relation_versions, ..Default::default() }).await
    }

    async fn page(&self, videos: &[&str], rest: query::BatchGetLikesRequest) -> Result<Vec<query::MyLike>, Status> {
        let video_ids = videos.iter().map(|video| (*video).to_owned()).collect();
        let message = query::BatchGetLikesRequest { video_ids, ..rest };
        let mut client = LikeQueryServiceClient::new(self.channel.clone());
        Ok(client.batch_get_likes(self.request(message)).await?.into_inner().likes)
    }

    pub async fn likes(&self, videos: &[&str]) -> Vec<query::MyLike> {
        self.try_likes(videos).await.expect("the page is answered")
    }

    /// The page once its counts cover `position`: the query service may hold an older number for a moment.
    pub async fn likes_at(&self, videos: &[&str], position: &str) -> Vec<query::MyLike> {
        let start = Instant::now();
        loop {
            let at = query::BatchGetLikesRequest { position: Some(position.to_owned()), ..Default::default() };
            let page = self.page(videos, at).await.expect("the page is answered");
            let covered =
                page.iter().all(|like| like.count.as_ref().is_some_and(|count| count.covers_position == Some(true)));
            if covered {
                return page;
            }
            assert!(start.elapsed() < PATIENCE, "counts never covered {position}: {page:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn counts(&self, videos: &[&str]) -> Result<Vec<query::VideoCount>, Status> {
        let message = query::BatchGetCountsRequest {
            video_ids: videos.iter().map(|video| (*video).to_owned()).collect(),
            ..Default::default()
        };
        let mut client = LikeQueryServiceClient::new(self.channel.clone());
        Ok(client.batch_get_counts(self.request(message)).await?.into_inner().counts)
    }

    pub async fn my_likes(&self, size: u32, token: &str) -> Result<(Vec<query::LikedVideo>, String), Status> {
        let message = query::ListMyLikesRequest { page_size: size, page_token: token.to_owned() };
        let mut client = LikeQueryServiceClient::new(self.channel.clone());
        let page = client.list_my_likes(self.request(message)).await?.into_inner();
        Ok((page.likes, page.next_page_token))
    }

    pub async fn all_my_likes(&self, size: u32) -> Vec<query::LikedVideo> {
        let (mut all, mut token) = (Vec::new(), String::new());
        loop {
            let (page, next) = self.my_likes(size, &token).await.expect("a page of my likes");
            all.extend(page);
            if next.is_empty() {
                return all;
            }
            assert_ne!(next, token, "the cursor moves");
            token = next;
        }
    }

    pub async fn likers(&self, video: &str, size: u32, token: &str) -> Result<(Vec<String>, String), Status> {
        let message =
            query::ListLikersRequest { video_id: video.to_owned(), page_size: size, page_token: token.to_owned() };
        let mut client = LikeQueryServiceClient::new(self.channel.clone());
        let page = client.list_likers(self.request(message)).await?.into_inner();
        Ok((page.likers.into_iter().map(|liker| liker.user_id).collect(), page.next_page_token))
    }

    pub async fn all_likers(&self, video: &str, size: u32) -> Vec<String> {
        let (mut all, mut token) = (Vec::new(), String::new());
        loop {
            let (page, next) = self.likers(video, size, &token).await.expect("a page of likers");
            all.extend(page);
            if next.is_empty() {
                return all;
            }
            assert_ne!(next, token, "the cursor moves");
            token = next;
        }
    }
}
