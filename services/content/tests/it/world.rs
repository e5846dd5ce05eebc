//! A whole service in this process, and the people who call it.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use likewise_devstack::{DevKeys, TestConfig, TestStack};
use likewise_kit::config::{Common, Loader};
use likewise_kit::errors;
use likewise_kit::run::{self, Context, Program as _};
use likewise_proto::content::v1 as pb;
use likewise_proto::content::v1::content_admin_service_client::ContentAdminServiceClient;
use likewise_proto::content::v1::follow_service_client::FollowServiceClient;
use likewise_proto::content::v1::post_service_client::PostServiceClient;
use likewise_proto::content::v1::user_service_client::UserServiceClient;
use likewise_proto::policy::v1 as policy;
use likewise_proto::policy::v1::policy_service_client::PolicyServiceClient;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

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

fn keys() -> &'static DevKeys {
    TestStack::get().keys()
}

pub struct World {
    pub config: TestConfig,
    pub channel: Channel,
    pub sql: tokio_postgres::Client,
    context: Context,
}

impl World {
    pub async fn start() -> Self {
        let config = TestStack::get().config().await;
        let mut loader = Loader::new(Some(config.path()), std::iter::empty());
        let common = Common::load(&mut loader);
        let settings = likewise_content::Content::settings(&mut loader);
        loader.finish().expect("a configuration in order");
        let common = common.unwrap();
        let bound = run::bind(&common.server).await.unwrap();
        let endpoint = bound.own_endpoint();
        let context = Context::new(common, "content").await.unwrap();
        let service = likewise_content::start(context.clone(), settings.unwrap()).await.unwrap();
        let serving = context.clone();
        tokio::spawn(async move { run::serve(serving, bound, vec![service]).await });
        let channel = likewise_kit::clients::channel(&endpoint).unwrap();
        let sql = config.database.connect().await.unwrap();
        sql.batch_execute("set search_path = content").await.unwrap();
        Self { config, channel, sql, context }
    }

    pub fn person(&self, name: &str) -> Caller {
        Caller { name: name.to_owned(), token: Some(keys().mint_user(name)), channel: self.channel.clone() }
    }

    /// Somebody whose account is open.
    pub async fn user(&self, name: &str) -> Caller {
        let person = self.person(name);
        person.register(name).await.unwrap();
        person
    }

    pub fn nobody(&self) -> Caller {
        Caller { name: String::new(), token: None, channel: self.channel.clone() }
    }

    pub fn operator(&self, roles: &[&str]) -> Caller {
        let token = Some(keys().mint_operator("olga", roles));
        Caller { name: "olga".to_owned(), token, channel: self.channel.clone() }
    }

    pub fn service(&self) -> Caller {
        let token = Some(keys().mint_service("query"));
        Caller { name: "query".to_owned(), token, channel: self.channel.clone() }
    }

    pub async fn number(&self, text: &str) -> i64 {
        self.sql.query_one(text, &[]).await.unwrap().get(0)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.context.draining.cancel();
    }
}

/// Code and reason of a refusal: `NotFound VIDEO_NOT_FOUND`.
pub fn refusal<T: Debug>(answer: Result<T, Status>) -> String {
    let status = answer.expect_err("a refusal");
    format!("{:?} {}", status.code(), errors::reason(&status).unwrap_or_default())
}

#[derive(Clone)]
pub struct Caller {
    pub name: String,
    token: Option<String>,
    channel: Channel,
}

fn inner<T>(answer: Result<Response<T>, Status>) -> Result<T, Status> {
    answer.map(Response::into_inner)
}

impl Caller {
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    }

    pub fn users(&self) -> UserServiceClient<Channel> {
        UserServiceClient::new(self.channel.clone())
    }

    pub fn posts(&self) -> PostServiceClient<Channel> {
        PostServiceClient::new(self.channel.clone())
    }

    pub fn follows(&self) -> FollowServiceClient<Channel> {
        FollowServiceClient::new(self.channel.clone())
    }

    pub fn admin(&self) -> ContentAdminServiceClient<Channel> {
        ContentAdminServiceClient::new(self.channel.clone())
    }

    pub fn policies(&self) -> PolicyServiceClient<Channel> {
        PolicyServiceClient::new(self.channel.clone())
    }

    pub async fn register(&self, username: &str) -> Result<policy::AccountPolicy, Status> {
        let message = pb::RegisterRequest { username: username.to_owned() };
        Ok(inner(self.users().register(self.request(message)).await)?.account.unwrap())
    }

    pub async fn delete(&self) -> Result<policy::AccountPolicy, Status> {
        Ok(inner(self.users().delete(self.request(pb::DeleteRequest {})).await)?.account.unwrap())
    }

    pub async fn restore(&self) -> Result<policy::AccountPolicy, Status> {
        Ok(inner(self.users().restore(self.request(pb::RestoreRequest {})).await)?.account.unwrap())
    }

    pub async fn block(&self, user_id: &str) -> Result<(), Status> {
        let message = pb::BlockRequest { user_id: user_id.to_owned() };
        inner(self.users().block(self.request(message)).await).map(drop)
    }

    pub async fn unblock(&self, user_id: &str) -> Result<(), Status> {
        let message = pb::UnblockRequest { user_id: user_id.to_owned() };
        inner(self.users().unblock(self.request(message)).await).map(drop)
    }

    pub async fn follow(&self, user_id: &str) -> Result<(), Status> {
        let message = pb::FollowRequest { user_id: user_id.to_owned() };
        inner(self.follows().follow(self.request(message)).await).map(drop)
    }

    pub async fn unfollow(&self, user_id: &str) -> Result<(), Status> {
        let message = pb::UnfollowRequest { user_id: user_id.to_owned() };
        inner(self.follows().unfollow(self.request(message)).await).map(drop)
    }

    pub async fn create(&self, post_id: &str) -> Result<pb::Post, Status> {
        self.create_as(pb::CreateRequest { post_id: post_id.to_owned(), ..Default::default() }).await
    }

    pub async fn create_as(&self, message: pb::CreateRequest) -> Result<pb::Post, Status> {
        Ok(inner(self.posts().create(self.request(message)).await)?.post.unwrap())
    }

    pub async fn get(&self, post_id: &str) -> Result<pb::Post, Status> {
        let message = pb::GetRequest { post_id: post_id.to_owned() };
        Ok(inner(self.posts().get(self.request(message)).await)?.post.unwrap())
    }

    pub async fn update(&self, message: pb::UpdateRequest) -> Result<pb::Post, Status> {
        Ok(inner(self.posts().update(self.request(message)).await)?.post.unwrap())
    }

    pub async fn delete_post(&self, post_id: &str) -> Result<pb::Post, Status> {
        let message = pb::DeletePostRequest { post_id: post_id.to_owned() };
        inner(self.posts().delete_post(self.request(message)).await)?;
        Ok(pb::Post::default())
    }

    pub async fn restore_post(&self, post_id: &str) -> Result<(), Status> {
        let message = pb::RestorePostRequest { post_id: post_id.to_owned() };
        inner(self.posts().restore_post(self.request(message)).await).map(drop)
    }

    pub async fn ban(&self, user_id: &str) -> Result<policy::AccountPolicy, Status> {
        let message = pb::BanAccountRequest { user_id: user_id.to_owned(), reason: "spam".to_owned() };
        Ok(inner(self.admin().ban_account(self.request(message)).await)?.account.unwrap())
    }

    pub async fn take_down(&self, post_id: &str) -> Result<pb::Post, Status> {
        let message = pb::TakeDownRequest { post_id: post_id.to_owned(), reason: "harm".to_owned() };
        Ok(inner(self.admin().take_down(self.request(message)).await)?.post.unwrap())
    }

    pub async fn video_policies(&self, ids: &[&str]) -> Result<Vec<policy::VideoPolicy>, Status> {
        let video_ids = ids.iter().map(|id| (*id).to_owned()).collect();
        let message = policy::BatchGetVideoPoliciesRequest { video_ids };
        Ok(inner(self.policies().batch_get_video_policies(self.request(message)).await)?.policies)
    }

    pub async fn accounts(
        &self,
        ids: &[&str],
        block_set_of: Option<&str>,
    ) -> Result<policy::BatchGetAccountPoliciesResponse, Status> {
        let message = policy::BatchGetAccountPoliciesRequest {
            user_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
            block_set_of: block_set_of.map(str::to_owned),
        };
        inner(self.policies().batch_get_account_policies(self.request(message)).await)
    }

    /// `friends blocked follows` of each, as the authority tells it.
    pub async fn pairs(&self, viewer: &str, others: &[&str]) -> Vec<String> {
        let message = policy::BatchCheckPairsRequest {
            viewer_id: viewer.to_owned(),
            other_ids: others.iter().map(|id| (*id).to_owned()).collect(),
        };
        let pairs = inner(self.policies().batch_check_pairs(self.request(message)).await).unwrap().pairs;
        let words = |pair: &policy::Pair| {
            let named = [(pair.friends, "friends"), (pair.blocked, "blocked"), (pair.follows, "follows")];
            let words: Vec<&str> = named.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
            format!("{}: {}", pair.other_id, words.join(" "))
        };
        pairs.iter().map(words).collect()
    }

    pub async fn changed_since(
        &self,
        cursor: &str,
        page_size: u32,
    ) -> Result<policy::ListChangedSinceResponse, Status> {
        let message = policy::ListChangedSinceRequest { cursor: cursor.to_owned(), page_size };
        inner(self.policies().list_changed_since(self.request(message)).await)
    }
}
