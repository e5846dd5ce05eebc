//! A running product: the stack, one standalone process, and people who speak to it.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use likewise_devstack::{DevKeys, Process, Stack, StackSpec, TestConfig, TestStack, build_binary};
use likewise_proto::content::v1::post_service_client::PostServiceClient;
use likewise_proto::content::v1::user_service_client::UserServiceClient;
use likewise_proto::content::v1::{CreateRequest, RegisterRequest};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

/// Deadline of one call.
const CALL: Duration = Duration::from_secs(10);
/// How long a process may take to end after SIGTERM.
const STOP_BOUND: Duration = Duration::from_secs(30);
/// The binary with all services.
const STANDALONE: &str = "likewise-standalone";

/// The product on a stack of its own.
#[derive(Debug)]
pub struct Site {
    /// The running process.
    pub process: Process,
    /// Its settings.
    pub config: TestConfig,
    /// Its servers. Last, so that it goes down last.
    pub stack: Stack,
    program: PathBuf,
    environment: Vec<(String, String)>,
}

impl Site {
    /// Starts the servers, builds the product, and starts it with further settings.
    ///
    /// # Errors
    /// When anything does not start; the message says what to type.
    pub async fn start(spec: StackSpec, release: bool, environment: Vec<(String, String)>) -> Result<Self> {
        step(&format!("building {STANDALONE}{}", if release { " for release" } else { "" }));
        let program = tokio::task::spawn_blocking(move || build_binary(STANDALONE, release)).await??;
        let stack = tokio::task::spawn_blocking(move || Stack::start(spec)).await??;
        let config = TestStack::of(&stack).config().await;
        step("starting all services in one process");
        let process = Process::run(&program, &config, &pairs(&environment)).await?;
        Ok(Self { process, config, stack, program, environment })
    }

    /// Ends the process with SIGKILL and starts another on the same stores.
    ///
    /// # Errors
    /// When the new one does not serve.
    pub async fn restart_after_kill(&mut self) -> Result<()> {
        self.process.kill().await;
        self.process = Process::run(&self.program, &self.config, &pairs(&self.environment)).await?;
        Ok(())
    }

    /// The binary with all services.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The keys that tokens are signed with.
    pub fn keys(&self) -> &DevKeys {
        self.stack.keys()
    }

    /// A channel to the running process.
    ///
    /// # Errors
    /// When its address is none.
    pub fn channel(&self) -> Result<Channel> {
        channel(self.process.grpc())
    }

    /// Somebody with an end user's token.
    pub fn person(&self, channel: &Channel, name: &str) -> Person {
        Person { name: name.to_owned(), token: self.keys().mint_user(name), channel: channel.clone() }
    }

    /// An operator who may look.
    pub fn viewer(&self, channel: &Channel) -> Person {
        let token = self.keys().mint_operator("olga", &["viewer"]);
        Person { name: "olga".to_owned(), token, channel: channel.clone() }
    }

    /// Ends the process as an orderly shutdown does, then the servers.
    ///
    /// # Errors
    /// When the process had to be killed, or its end was no success.
    pub async fn stop(mut self) -> Result<()> {
        let ended = self.process.terminate(STOP_BOUND).await;
        let log = self.process.log_tail();
        tokio::task::spawn_blocking(move || drop(self)).await?;
        let status = ended?;
        if !status.success() {
            bail!("the process ended with {status}; its log says:\n{log}");
        }
        Ok(())
    }
}

fn pairs(environment: &[(String, String)]) -> Vec<(&str, &str)> {
    environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// A lazy channel to `address`, as `127.0.0.1:PORT`.
///
/// # Errors
/// When it is no address.
pub fn channel(address: &str) -> Result<Channel> {
    let endpoint =
        Channel::from_shared(format!("http://{address}")).with_context(|| format!("{address} as address"))?;
    Ok(endpoint.connect_lazy())
}

/// Says what is being done.
pub fn step(what: &str) {
    eprintln!("cargo dev: {what}");
}

/// Somebody with a token.
#[derive(Clone, Debug)]
pub struct Person {
    /// Who it is.
    pub name: String,
    /// The bearer token.
    pub token: String,
    /// Where the calls go.
    pub channel: Channel,
}

impl Person {
    /// A request with this person's token and a deadline.
    pub fn request<T>(&self, message: T) -> Request<T> {
        self.request_within(message, CALL)
    }

    /// A request with this person's token and a deadline of the caller's choice.
    pub fn request_within<T>(&self, message: T, deadline: Duration) -> Request<T> {
        let mut request = Request::new(message);
        request.set_timeout(deadline);
        if let Ok(value) = format!("Bearer {}", self.token).parse() {
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    /// Opens the account; a second time changes nothing.
    ///
    /// # Errors
    /// What the service answers.
    pub async fn register(&self) -> Result<(), Status> {
        let message = RegisterRequest { username: self.name.clone() };
        UserServiceClient::new(self.channel.clone()).register(self.request(message)).await?;
        Ok(())
    }

    /// Publishes a video; a second time changes nothing.
    ///
    /// # Errors
    /// What the service answers.
    pub async fn publish(&self, video: &str, text: &str) -> Result<(), Status> {
        let message = CreateRequest { post_id: video.to_owned(), content: text.to_owned(), ..CreateRequest::default() };
        PostServiceClient::new(self.channel.clone()).create(self.request(message)).await?;
        Ok(())
    }
}

/// The stable reason of an error, or its code where it has none.
pub fn reason(status: &Status) -> String {
    let named = status.get_details_error_info().map(|info| info.reason);
    named.unwrap_or_else(|| format!("{:?}: {}", status.code(), status.message()))
}

/// Whether the same call may succeed later.
pub fn may_pass(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown
    )
}

/// Waits until `attempt` succeeds; after `bound` the error says what it saw last.
///
/// # Errors
/// When it does not succeed in time.
pub async fn eventually<T, F>(what: &str, bound: Duration, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T, String>>,
{
    let begin = Instant::now();
    let mut pause = Duration::from_millis(10);
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(last) if begin.elapsed() > bound => bail!("{what}: not within {bound:?}; last seen: {last}"),
            Err(_) => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_millis(200));
    }
}
