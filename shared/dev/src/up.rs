//! `cargo dev up`: the whole product in the foreground.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, anyhow};
use likewise_devstack::StackSpec;

use crate::site::{Site, reason, step};
use crate::token::Running;

/// How to run it.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Port of gRPC, gRPC-Web and reflection; 7400 if it is free, otherwise any
    #[arg(long)]
    port: Option<u16>,
    /// Build and run the release profile
    #[arg(long)]
    release: bool,
    /// PostgreSQL servers
    #[arg(long, default_value_t = 1)]
    postgres: usize,
    /// A Redis Cluster of three instead of one server
    #[arg(long)]
    redis_cluster: bool,
}

/// The port people find when they ask for none.
const PORT: u16 = 7400;
/// Who has an account.
const PEOPLE: [&str; 5] = ["ava", "lin", "mei", "bo", "kai"];
/// What there is to like, all by the first of [`PEOPLE`].
const VIDEOS: [(&str, &str); 4] = [
    ("V9001", "A cat opens a door"),
    ("V9002", "Rain on a tin roof, ten hours"),
    ("V9003", "Dumplings, folded slowly"),
    ("V9004", "The longest domino line"),
];

/// Runs until ctrl-c or SIGTERM.
///
/// # Errors
/// When something does not start, or did not end cleanly.
pub async fn run(arguments: Arguments) -> Result<()> {
    let spec = StackSpec {
        postgres_servers: arguments.postgres,
        redis_cluster: arguments.redis_cluster,
        ..StackSpec::default()
    };
    let port = arguments.port.unwrap_or_else(|| if is_free(PORT) { PORT } else { 0 });
    let address = ("LIKEWISE__SERVER__ADDRESS".to_owned(), format!("127.0.0.1:{port}"));
    let ended = ended();
    let site = tokio::select! {
        site = Site::start(spec, arguments.release, vec![address]) => site?,
        () = ended => return Ok(()),
    };
    let running = Running { keys: site.stack.address().keys(), grpc: site.process.grpc().to_owned() };
    running.write()?;
    let result = serve(site).await;
    running.remove();
    result
}

async fn serve(mut site: Site) -> Result<()> {
    seed(&site).await?;
    println!("{}", describe(&site)?);
    let outcome = tokio::select! {
        () = ended() => Ok(()),
        () = death(&mut site) => Err(anyhow!("the process ended by itself; its log says:\n{}", site.process.log_tail())),
    };
    outcome?;
    step("stopping");
    site.stop().await?;
    step("everything is stopped");
    Ok(())
}

async fn death(site: &mut Site) {
    while !site.process.ended_within(std::time::Duration::from_secs(3600)).await {}
}

/// Ctrl-c or SIGTERM.
pub(crate) async fn ended() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

async fn seed(site: &Site) -> Result<()> {
    step("opening accounts and publishing videos");
    let channel = site.channel()?;
    let failed = |what: &str, status: &tonic::Status| anyhow!("{what}: {}", reason(status));
    for name in PEOPLE {
        site.person(&channel, name).register().await.map_err(|status| failed(name, &status))?;
    }
    let author = site.person(&channel, PEOPLE[0]);
    for (video, text) in VIDEOS {
        author.publish(video, text).await.map_err(|status| failed(video, &status))?;
    }
    Ok(())
}

fn describe(site: &Site) -> Result<String> {
    let grpc = site.process.grpc();
    let user = site.keys().mint_user("lin");
    let operator = site.keys().mint_operator("olga", &["viewer", "operator", "approver"]);
    let address = site.stack.address();
    let videos: Vec<&str> = VIDEOS.iter().map(|(video, _)| *video).collect();
    let operation = uuid::Uuid::now_v7();
    let buf = likewise_devstack::Place::find()?.tools().join("buf-1.75.0/bin/buf");
    let buf_note = if buf.is_file() {
        format!("# buf is here: export PATH=\"$PATH:{}\"", buf.parent().unwrap_or(&buf).display())
    } else {
        "# no buf on PATH? `cargo dev lint` fetches one, or: pip install buf-bin".to_owned()
    };
    Ok(format!(
        "
gRPC, gRPC-Web, reflection   {grpc}
metrics and probes           http://{admin}/metrics  /livez  /readyz
PostgreSQL                   {postgres}
NATS                         {nats}
Redis                        {redis}
log                          {log}
people                       {people}
videos                       {videos}

# paste this into another terminal
export LIKEWISE={grpc}
export TOKEN={user}
export OPERATOR={operator}

# like a video; send it again and get the same verdict
grpcurl -plaintext -H \"authorization: Bearer $TOKEN\" \\
  -d '{{\"video_id\":\"V9001\",\"desired_state\":\"LIKE_STATE_LIKED\",\"operation_id\":\"{operation}\"}}' \\
  $LIKEWISE likewise.command.v1.LikeCommandService/SetLike

{buf_note}
# the heart and the number of a page
buf curl --protocol grpc --http2-prior-knowledge -H \"authorization: Bearer $TOKEN\" \\
  -d '{{\"video_ids\":[\"V9001\",\"V9002\"]}}' \\
  http://$LIKEWISE/likewise.query.v1.LikeQueryService/BatchGetLikes

# the same as a browser does it: gRPC-Web
buf curl --protocol grpcweb -H \"authorization: Bearer $TOKEN\" \\
  -d '{{\"video_ids\":[\"V9001\",\"V9002\"]}}' \\
  http://$LIKEWISE/likewise.query.v1.LikeQueryService/BatchGetLikes

# where every lane and projection stands
grpcurl -plaintext -H \"authorization: Bearer $OPERATOR\" \\
  $LIKEWISE likewise.reconciliation.v1.OperationsService/GetLagBoard

# a projection of your own, fed with every change: table `taste` in the database above
export CONSUMER_NAME=tastes CONSUMER_POSTGRES={postgres} CONSUMER_NATS={nats} \\
  CONSUMER_PUBLISHER=http://$LIKEWISE CONSUMER_STREAM_PREFIX={prefix} CONSUMER_TOKEN=$(cargo dev token --service tastes)
cargo run -p likewise-client --features consumer --example tastes

# tokens for others: cargo dev token --user mei
# everything ends with ctrl-c
",
        admin = site.process.admin(),
        postgres = site.config.database.dsn(),
        prefix = site.config.stream_prefix,
        nats = address.nats,
        redis = address.redis,
        log = site.process.log().display(),
        people = PEOPLE.join(" "),
        videos = videos.join(" "),
    ))
}
