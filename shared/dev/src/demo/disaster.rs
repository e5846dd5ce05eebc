//! Redis is emptied; the services are killed. Nothing that was committed is gone.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use likewise_proto::types::v1::LikeState::Liked;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::look::{Expected, answer, failed, page_with, set, state};
use super::tale::Tale;
use super::{LIN, VIDEO};
use crate::site::Site;

/// Every key of Redis goes; the count is read again from what is durable.
pub(crate) async fn emptied_redis(site: &Site, tale: &mut Tale, expected: &Expected) -> Result<()> {
    tale.chapter("Redis loses everything");
    for server in site.stack.redis() {
        flush(server.address()).await?;
    }
    let lin = site.person(&site.channel()?, LIN);
    let count = page_with(&lin, expected.count(), None).await?.count.unwrap_or_default();
    tale.must("the count is still there", &count.display, &Some(expected.count()));
    Ok(())
}

/// All services end with SIGKILL; the next process goes on where they were.
pub(crate) async fn killed(site: &mut Site, tale: &mut Tale, expected: &Expected) -> Result<()> {
    tale.chapter("All services are killed with SIGKILL and started again");
    site.restart_after_kill().await?;
    let lin = site.person(&site.channel()?, LIN);
    let again = set(&lin, VIDEO, Liked, "op-101").await.map_err(failed("op-101 after the restart"))?;
    let words = "APPLIED LIKED v1; now UNLIKED v2";
    tale.must("SetLike(op-101) still has its first verdict", &answer(&again).as_str(), &words);
    let like = set(&lin, VIDEO, Liked, "op-104").await.map_err(failed("op-104"))?;
    tale.must("SetLike(op-104, LIKED)", &answer(&like).as_str(), &"APPLIED LIKED v3; now LIKED v3");
    let page = page_with(&lin, expected.count() + 1, Some(&like.position)).await?;
    let (heart, count) = (state(page.my_state()), page.count.and_then(|count| count.display));
    tale.must("the heart is red, the count one more", &(heart, count), &("LIKED", Some(expected.count() + 1)));
    Ok(())
}

async fn flush(address: SocketAddr) -> Result<()> {
    let mut stream = TcpStream::connect(address).await.context("connecting to Redis")?;
    stream.write_all(b"FLUSHALL\r\nQUIT\r\n").await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.context("emptying Redis")?;
    Ok(())
}
