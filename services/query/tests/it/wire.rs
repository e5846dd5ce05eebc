//! Stands between the service and Redis: can be cut, and keeps the names of the commands that pass.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The wire to Redis, cut when dropped.
pub(crate) struct Wire {
    /// The address for the service.
    pub(crate) url: String,
    cut: CancellationToken,
    sent: Arc<Mutex<Vec<u8>>>,
}

impl Wire {
    /// To the Redis of `redis://HOST:PORT`.
    pub(crate) async fn to(url: &str) -> Self {
        let target = url.trim_start_matches("redis://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("redis://{}", listener.local_addr().expect("an address"));
        let (cut, sent) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
        let wire = Self { url, cut: cut.clone(), sent: Arc::clone(&sent) };
        tokio::spawn(cut.clone().run_until_cancelled_owned(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&target).await.expect("Redis");
                let ((from, back), (answers, to)) = (client.into_split(), server.into_split());
                tokio::spawn(cut.clone().run_until_cancelled_owned(pass(from, to, Some(Arc::clone(&sent)))));
                tokio::spawn(cut.clone().run_until_cancelled_owned(pass(answers, back, None)));
            }
        }));
        wire
    }

    /// Redis is gone from now on.
    pub(crate) fn cut(&self) {
        self.cut.cancel();
    }

    /// The commands that were sent.
    pub(crate) fn commands(&self) -> BTreeSet<String> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lines: Vec<_> = String::from_utf8_lossy(&sent).split("\r\n").map(str::to_owned).collect();
        // `*2`, `$4`, `PING`: the name stands in the second line after the number of arguments.
        let starts = lines.iter().enumerate().filter(|(_, line)| line.starts_with('*'));
        starts.filter_map(|(at, _)| lines.get(at + 2)).map(|name| name.to_uppercase()).collect()
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, kept: Option<Arc<Mutex<Vec<u8>>>>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if let Some(kept) = &kept {
            kept.lock().unwrap_or_else(PoisonError::into_inner).extend(&buffer[..count]);
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
