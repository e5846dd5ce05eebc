//! A line between client and server that can lose answers: requests pass, what comes back does not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// The line.
#[derive(Debug)]
pub(crate) struct Line {
    address: String,
    loses_answers: Arc<AtomicBool>,
}

impl Line {
    /// Lays a line to `target`.
    pub(crate) async fn lay(target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("laying a line")?;
        let line = Self { address: listener.local_addr()?.to_string(), loses_answers: Arc::default() };
        let (target, loses) = (target.to_owned(), line.loses_answers.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pass(from_client, to_server, Arc::default()));
                tokio::spawn(pass(from_server, to_client, loses.clone()));
            }
        });
        Ok(line)
    }

    /// Where it begins.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// From now on no answer arrives.
    pub(crate) fn lose_answers(&self) {
        self.loses_answers.store(true, Ordering::SeqCst);
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, loses: Arc<AtomicBool>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if !loses.load(Ordering::SeqCst) && to.write_all(&buffer[..read]).await.is_err() {
            break;
        }
    }
}
