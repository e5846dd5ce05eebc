//! A server to call, keys of its own, and tokens good and bad.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::pkcs8::EncodePrivateKey as _;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::{Signer as _, SigningKey};
use likewise_kit::config::{Common, Loader};
use likewise_kit::lanes::WatermarkSource;
use likewise_kit::run::{self, Context, ReadyCheck, Service};
use likewise_proto::lanes::v1::lane_service_client::LaneServiceClient;
use likewise_proto::lanes::v1::{GetWatermarksRequest, GetWatermarksResponse};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

/// An issuer's key.
pub(crate) struct Issuer {
    pub(crate) kid: &'static str,
    pub(crate) key: SigningKey,
}

impl Issuer {
    pub(crate) fn new(kid: &'static str) -> Self {
        Self { kid, key: SigningKey::from_bytes(&rand::random()) }
    }

    pub(crate) fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key.verifying_key().to_bytes());
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.kid, "x": x })
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({ "alg": "EdDSA", "kid": self.kid }), claims)
    }

    /// A signature that is good, under a header of the test's choice.
    pub(crate) fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()).to_bytes());
        format!("{signed}.{signature}")
    }
}

/// Header and claims, without a signature.
pub(crate) fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}

/// Good claims of an end user for the next minute.
pub(crate) fn claims(sub: &str) -> Value {
    json!({ "sub": sub, "iss": "likewise", "aud": "likewise", "exp": seconds(60) })
}

/// So many seconds from now, as a token says it.
pub(crate) fn seconds(from_now: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    i64::try_from(now).expect("a time") + from_now
}

/// Claims with some of them replaced; null takes one away.
pub(crate) fn with(mut claims: Value, changes: &Value) -> Value {
    let map = claims.as_object_mut().expect("an object");
    for (key, value) in changes.as_object().expect("an object") {
        if value.is_null() {
            map.remove(key);
        } else {
            map.insert(key.clone(), value.clone());
        }
    }
    claims
}

/// Settings, keys and parts of a server that does not run yet.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) people: Issuer,
    pub(crate) services: Issuer,
    pub(crate) service: Service,
    settings: String,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (people, services) = (Issuer::new("people"), Issuer::new("services"));
        let pem = services.key.to_pkcs8_pem(LineEnding::LF).expect("a key");
        std::fs::write(folder.path().join("service.pem"), pem.as_bytes()).expect("written");
        let cursor = format!("k1:{}\n", base64::engine::general_purpose::STANDARD.encode([7; 32]));
        std::fs::write(folder.path().join("cursor"), cursor).expect("written");
        let world = Self { folder, people, services, service: service(), settings: String::new() };
        world.write_keys(&[world.people.jwk(), world.services.jwk()]);
        world
    }

    /// Adds a line to the section `[server]`.
    pub(crate) fn setting(mut self, line: &str) -> Self {
        self.settings.push_str(line);
        self.settings.push('\n');
        self
    }

    /// Makes `GetWatermarks` do something before it answers.
    pub(crate) fn source(mut self, source: impl WatermarkSource + 'static) -> Self {
        self.service.watermarks.push(Arc::new(source));
        self
    }

    pub(crate) fn ready(mut self, name: &'static str, check: ReadyCheck) -> Self {
        self.service.ready.push((name, check));
        self
    }

    pub(crate) fn write_keys(&self, keys: &[Value]) {
        let beside = self.folder.path().join("jwks.new");
        std::fs::write(&beside, json!({ "keys": keys }).to_string()).expect("written");
        std::fs::rename(beside, self.folder.path().join("jwks.json")).expect("renamed");
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn common(&self) -> Common {
        let at = |name| self.file(name).display().to_string();
        let text = format!(
            "[server]\naddress = \"127.0.0.1:0\"\nadmin_address = \"127.0.0.1:0\"\n{}\n\
             [auth]\nkeys_file = {:?}\nservice_key_file = {:?}\nservice_key_id = \"services\"\n\
             cursor_keys_file = {:?}\n[nats]\nurl = \"nats://127.0.0.1:1\"\n[redis]\nurl = \"redis://127.0.0.1:1\"\n\
             [postgres.servers]\nmain = \"postgres://nobody@127.0.0.1:1/none\"\n",
            self.settings,
            at("jwks.json"),
            at("service.pem"),
            at("cursor"),
        );
        std::fs::write(self.file("likewise.toml"), text).expect("written");
        let mut loader = Loader::new(Some(&self.file("likewise.toml")), std::iter::empty());
        let common = Common::load(&mut loader);
        loader.finish().expect("settings without faults");
        common.expect("settings")
    }

    pub(crate) async fn context(&self) -> Context {
        Context::new(self.common(), "test").await.expect("a context")
    }

    pub(crate) async fn serve(self) -> Running {
        let context = self.context().await;
        self.serve_with(context).await
    }

    pub(crate) async fn serve_with(mut self, context: Context) -> Running {
        let bound = run::bind(&context.common.server).await.expect("bound");
        let (grpc, admin) = (bound.grpc, bound.admin);
        let service = std::mem::replace(&mut self.service, service());
        let served = tokio::spawn(run::serve(context.clone(), bound, vec![service]));
        Running { world: self, grpc, admin, context, served }
    }
}

/// Claims to serve nothing of its own: the runner's services are what is called.
fn service() -> Service {
    Service {
        name: "test",
        routes: tonic::service::Routes::default(),
        grpc_names: vec!["likewise.query.v1.LikeQueryService"],
        watermarks: Vec::new(),
        ready: Vec::new(),
    }
}

/// A server that runs.
pub(crate) struct Running {
    pub(crate) world: World,
    pub(crate) grpc: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) context: Context,
    pub(crate) served: JoinHandle<Result<(), run::Error>>,
}

impl Running {
    pub(crate) fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.grpc)).expect("an endpoint").connect_lazy()
    }

    /// Calls `GetWatermarks` with these `authorization` values.
    pub(crate) async fn call(&self, authorization: &[&str]) -> Result<GetWatermarksResponse, Status> {
        call(self.channel(), authorization).await
    }

    /// Calls it as a service.
    pub(crate) async fn call_as_service(&self) -> Result<GetWatermarksResponse, Status> {
        let token = self.service_token();
        self.call(&[&format!("Bearer {token}")]).await
    }

    pub(crate) fn service_token(&self) -> String {
        self.world.services.sign(&with(claims("counter"), &json!({ "aud": "likewise-internal" })))
    }

    /// `GET` on the admin port: status and body.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        http1(self.admin, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), b"").await
    }

    /// Asks the process to end, and waits until it has.
    pub(crate) async fn end(self) -> Result<(), run::Error> {
        self.context.draining.cancel();
        bounded("the end of the process", self.served).await.expect("no panic")
    }
}

pub(crate) async fn call(channel: Channel, authorization: &[&str]) -> Result<GetWatermarksResponse, Status> {
    let mut request = Request::new(GetWatermarksRequest {});
    for value in authorization {
        request.metadata_mut().append("authorization", value.parse().expect("a header"));
    }
    let mut client = LaneServiceClient::new(channel);
    bounded("an answer", client.get_watermarks(request)).await.map(tonic::Response::into_inner)
}

/// One HTTP/1.1 exchange in which the server closes the connection: status, and headers and body as text.
pub(crate) async fn http1(address: SocketAddr, head: &str, body: &[u8]) -> (u16, String) {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.expect("connected");
        stream.write_all(head.as_bytes()).await.expect("sent");
        stream.write_all(body).await.expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("an answer");
        String::from_utf8_lossy(&answer).into_owned()
    };
    let answer = bounded("an answer over HTTP/1.1", exchange).await;
    let status = answer.get(9..12).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {answer:?}")), answer)
}

/// Waits for something that must happen soon.
pub(crate) async fn bounded<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.unwrap_or_else(|_| panic!("no {what} in time"))
}

/// Asks until the answer is as wanted; tells the last one when it never is.
pub(crate) async fn until<T: std::fmt::Debug, F: Future<Output = T>>(
    what: &str,
    mut ask: impl FnMut() -> F,
    wanted: impl Fn(&T) -> bool,
) {
    let started = tokio::time::Instant::now();
    loop {
        let answer = ask().await;
        if wanted(&answer) {
            return;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "{what}: still {answer:?}");
        tokio::task::yield_now().await;
    }
}
