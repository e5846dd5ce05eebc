//! A line between the services and PostgreSQL that can be abandoned: the services lose their connections, the server
//! does not, and goes on with what it was told.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// The line. Dropping it drops the server's side of everything that was abandoned.
pub struct Line {
    port: u16,
    present: Arc<Mutex<CancellationToken>>,
}

impl Line {
    /// Lays a line to the server at `target`.
    pub async fn lay(target: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let present = Arc::new(Mutex::new(CancellationToken::new()));
        let shared = Arc::clone(&present);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                let abandoned = shared.lock().unwrap().clone();
                tokio::spawn(pass(client, server, abandoned));
            }
        });
        Self { port, present }
    }

    /// Where it begins.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends every connection on the services' side; the server's side stays open and silent. New ones pass.
    pub fn abandon(&self) {
        let mut present = self.present.lock().unwrap();
        present.cancel();
        *present = CancellationToken::new();
    }
}

async fn pass(client: TcpStream, server: TcpStream, abandoned: CancellationToken) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
            if to_server.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
    };
    let back = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
            if to_client.write_all(&buffer[..read]).await.is_err() {
                break;
            }
        }
    };
    let was_abandoned = tokio::select! {
        () = there => false,
        () = back => false,
        () = abandoned.cancelled() => true,
    };
    drop((from_client, to_client));
    if was_abandoned {
        // What the server still says is heard by nobody.
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(1..) = from_server.read(&mut buffer).await {}
    }
    drop(to_server);
}
