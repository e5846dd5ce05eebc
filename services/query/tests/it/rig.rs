//! What the tests stand on: the whole service in this process, its callers, and a short notation for answers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

use fred::clients::Pool;
use fred::interfaces::{HashesInterface as _, KeysInterface as _};
use likewise_devstack::{DevKeys, TestConfig, TestStack};
use likewise_kit::config::{Common, Loader};
use likewise_kit::run::{self, Context, Program as _};
use likewise_proto::query::v1 as wire;
use likewise_proto::query::v1::like_query_service_client::LikeQueryServiceClient;
use likewise_query::{Query, Settings};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::stand::Stand;

/// Longest wait for anything; a loaded machine is slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `look` answers something, and shows what it saw last when it does not.
pub(crate) async fn eventually<T, S: Debug>(what: &str, mut look: impl AsyncFnMut() -> Result<T, S>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < end, "{what}: last seen {seen:?}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Nothing is believed for long, so that a test need not wait for it to age; a Redis that is there may be slow.
const IMPATIENT: [(&str, &str); 4] = [
    ("QUERY__COUNT_TTL_MS", "1"),
    ("QUERY__PROGRESS_POLL_MS", "1"),
    ("QUERY__POLICY_TTL_MS", "1"),
    ("REDIS__COMMAND_TIMEOUT_MS", "10000"),
];

fn settings(config: &TestConfig, changes: &[(&str, &str)]) -> (Common, Settings) {
    let variables = changes.iter().map(|(name, value)| (format!("LIKEWISE__{name}"), (*value).to_owned()));
    let mut loader = Loader::new(Some(config.path()), variables);
    let common = Common::load(&mut loader);
    let settings = Query::settings(&mut loader);
    loader.finish().expect("a configuration in order");
    (common.expect("common settings"), settings.expect("settings"))
}

/// A whole service in this process, the stand-ins it asks, and its Redis.
pub(crate) struct Rig {
    pub(crate) config: TestConfig,
    pub(crate) stand: Stand,
    pub(crate) redis: Pool,
    channel: Channel,
    context: Context,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(changes: &[(&str, &str)]) -> Self {
        let config = TestStack::get().config().await;
        let stand = Stand::new();
        let endpoint = stand.serve().await;
        let mut all = IMPATIENT.to_vec();
        for name in ["ENDPOINTS__COMMAND", "ENDPOINTS__COUNTER", "ENDPOINTS__POLICY", "ENDPOINTS__REVERSE_INDEX"] {
            all.push((name, &endpoint));
        }
        all.extend_from_slice(changes);
        let own = settings(&config, &IMPATIENT).0.redis;
        let redis = likewise_kit::redis::connect(&own).await.expect("an address of Redis");
        let (common, settings) = settings(&config, &all);
        let bound = run::bind(&common.server).await.expect("bound");
        let channel = likewise_kit::clients::channel(&bound.own_endpoint()).expect("an endpoint");
        let context = Context::new(common, "query").await.expect("a context");
        let service = likewise_query::start(context.clone(), settings).await.expect("started");
        let serving = context.clone();
        tokio::spawn(async move { run::serve(serving, bound, vec![service]).await.expect("served") });
        Self { config, stand, redis, channel, context }
    }

    pub(crate) fn user(&self, user: &str) -> Caller {
        self.caller(Some(keys().mint_user(user)))
    }

    pub(crate) fn caller(&self, token: Option<String>) -> Caller {
        Caller { channel: self.channel.clone(), token }
    }

    /// Writes a view as the counter does.
    pub(crate) async fn view(&self, generation: u64, video: &str, numbers: [u64; 4], approximate: bool) {
        let [raw, risk, policy, display] = numbers.map(|number| number.to_string());
        let fields = [
            ("raw", raw),
            ("risk", risk),
            ("policy", policy),
            ("display", display),
            ("generated_at", "1700000001000000".to_owned()),
            ("pass", "9".to_owned()),
            ("approximate", u8::from(approximate).to_string()),
        ];
        let key = self.key(generation, video);
        self.redis.hset::<(), _, _>(key, fields.to_vec()).await.expect("Redis answers");
    }

    pub(crate) async fn forget_view(&self, video: &str) {
        self.redis.del::<i64, _>(self.key(1, video)).await.expect("Redis answers");
    }

    fn key(&self, generation: u64, video: &str) -> String {
        format!("{}like:count:view:g{generation}:{{{video}}}", self.config.redis_prefix)
    }

    /// What Redis holds of a view, and its life.
    pub(crate) async fn held(&self, video: &str) -> (BTreeMap<String, String>, i64) {
        let key = self.key(1, video);
        let fields = self.redis.hgetall(&key).await.expect("Redis answers");
        (fields, self.redis.ttl(&key).await.expect("Redis answers"))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.context.draining.cancel();
        self.context.stop.cancel();
    }
}

pub(crate) fn keys() -> &'static DevKeys {
    TestStack::get().keys()
}

pub(crate) fn ids(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Somebody who calls.
pub(crate) struct Caller {
    channel: Channel,
    token: Option<String>,
}

impl Caller {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
        }
        request
    }

    fn client(&self) -> LikeQueryServiceClient<Channel> {
        LikeQueryServiceClient::new(self.channel.clone())
    }

    pub(crate) async fn ask_likes(&self, message: wire::BatchGetLikesRequest) -> Result<Vec<wire::MyLike>, Status> {
        let answer = self.client().batch_get_likes(self.request(message)).await?;
        Ok(answer.into_inner().likes)
    }

    pub(crate) async fn ask_counts(
        &self,
        message: wire::BatchGetCountsRequest,
    ) -> Result<Vec<wire::VideoCount>, Status> {
        let answer = self.client().batch_get_counts(self.request(message)).await?;
        Ok(answer.into_inner().counts)
    }

    pub(crate) async fn likes(&self, videos: &str) -> Result<Vec<wire::MyLike>, Status> {
        self.ask_likes(wire::BatchGetLikesRequest { video_ids: ids(videos), ..Default::default() }).await
    }

    /// `V1+3 V2-0`: hearts with their versions, in the order of the answer.
    pub(crate) async fn hearts(&self, videos: &str) -> String {
        let likes = self.likes(videos).await.expect("hearts");
        let heart = |like: &wire::MyLike| {
            let sign = if like.my_state() == likewise_proto::types::v1::LikeState::Liked { '+' } else { '-' };
            format!("{}{sign}{}", like.video_id, like.relation_version)
        };
        likes.iter().map(heart).collect::<Vec<_>>().join(" ")
    }

    pub(crate) async fn try_counts(&self, videos: &str) -> Result<String, Status> {
        let counts = self.ask_counts(wire::BatchGetCountsRequest { video_ids: ids(videos), position: None }).await?;
        Ok(counts.iter().map(|one| told(one.count.as_ref().expect("a count"))).collect::<Vec<_>>().join(", "))
    }

    /// `6 of 9-1-2 VISIBLE FRESH, ? VISIBLE STALE`: counts in the order of the answer.
    pub(crate) async fn counts(&self, videos: &str) -> String {
        self.try_counts(videos).await.expect("counts")
    }

    pub(crate) async fn my_likes(&self, page_size: u32, token: &str) -> Result<wire::ListMyLikesResponse, Status> {
        let message = wire::ListMyLikesRequest { page_size, page_token: token.to_owned() };
        Ok(self.client().list_my_likes(self.request(message)).await?.into_inner())
    }

    pub(crate) async fn likers(
        &self,
        video: &str,
        page_size: u32,
        token: &str,
    ) -> Result<wire::ListLikersResponse, Status> {
        let message = wire::ListLikersRequest { video_id: video.to_owned(), page_size, page_token: token.to_owned() };
        Ok(self.client().list_likers(self.request(message)).await?.into_inner())
    }
}

/// A count: its number (`?` when absent), its parts where they are told, whether it may be shown and how current it is.
pub(crate) fn told(count: &wire::Count) -> String {
    let number = count.display.map_or("?".to_owned(), |number| number.to_string());
    let parts = match (count.raw, count.risk_hidden, count.policy_hidden) {
        (None, None, None) => String::new(),
        (raw, risk, policy) => {
            let [raw, risk, policy] =
                [raw, risk, policy].map(|part| part.map_or("?".to_owned(), |part| part.to_string()));
            format!(" of {raw}-{risk}-{policy}")
        }
    };
    let visibility = count.visibility().as_str_name().trim_start_matches("COUNT_VISIBILITY_");
    let freshness = count.freshness().as_str_name().trim_start_matches("COUNT_FRESHNESS_");
    format!("{number}{parts} {visibility} {freshness}")
}

/// `NotFound VIDEO_NOT_FOUND`: code and reason of an error.
pub(crate) fn refusal<T: Debug>(answer: Result<T, Status>) -> String {
    let status = answer.expect_err("a refusal");
    let reason = likewise_kit::errors::reason(&status).unwrap_or_default();
    format!("{:?} {reason}", status.code()).trim_end().to_owned()
}
