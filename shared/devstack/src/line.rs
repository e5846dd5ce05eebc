//! A TCP line between a service and a server that can misbehave: cut, abandoned, slow, silent, or cut exactly around a
//! COMMIT.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// PostgreSQL's answer to a COMMIT: CommandComplete with the tag COMMIT.
const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";
/// A simple query that says commit, as drivers send it.
const COMMITS: &[u8] = b"commit\0";
const BUFFER: usize = 64 * 1024;

/// How the line treats what travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Everything passes.
    Clear,
    /// Everything passes, this much later, each way.
    Slow(Duration),
    /// Nothing passes and nothing ends; connections are accepted and stay silent. What travelled is lost, so connections that
    /// were there break when it clears up.
    Silent,
    /// Connections end at once, and so do new ones.
    Down,
}

/// Where around a COMMIT a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The server never hears of it.
    BeforeCommit,
    /// The server has committed; its answer is lost.
    AfterCommit,
}

#[derive(Debug)]
struct Shared {
    weather: watch::Sender<Weather>,
    present: Mutex<CancellationToken>,
    cut: Mutex<Option<Cut>>,
}

impl Shared {
    fn present(&self) -> MutexGuard<'_, CancellationToken> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) -> MutexGuard<'_, Option<Cut>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the order to cut if this is the place for it.
    fn cuts(&self, place: Cut) -> bool {
        let mut cut = self.cut();
        let is_here = *cut == Some(place);
        if is_here {
            *cut = None;
        }
        is_here
    }
}

/// The line. Dropping it ends it.
#[derive(Debug)]
pub struct Line {
    port: u16,
    shared: Arc<Shared>,
    end: CancellationToken,
}

impl Line {
    /// Lays a line to `target`, `host:port`. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// When no port can be listened on.
    pub async fn lay(target: &str) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            weather: watch::Sender::new(Weather::Clear),
            present: Mutex::default(),
            cut: Mutex::default(),
        });
        let end = CancellationToken::new();
        let (target, held, ended) = (target.to_owned(), Arc::clone(&shared), end.clone());
        tokio::spawn(async move {
            let accept = async {
                while let Ok((client, _)) = listener.accept().await {
                    let present = held.present().child_token();
                    tokio::spawn(connect(client, target.clone(), Arc::clone(&held), present));
                }
            };
            ended.run_until_cancelled(accept).await;
            held.present().cancel();
        });
        Ok(Self { port, shared, end })
    }

    /// Where it begins, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes how everything is treated from now on.
    pub fn weather(&self, weather: Weather) {
        self.shared.weather.send_replace(weather);
    }

    /// The next COMMIT that travels is met with this, once. Whoever waits for it looks at [`Line::was_cut`].
    pub fn cut_at(&self, cut: Cut) {
        *self.shared.cut() = Some(cut);
    }

    /// Whether the last order to cut was carried out.
    pub fn was_cut(&self) -> bool {
        self.shared.cut().is_none()
    }

    /// Ends every connection on the client's side; the server's side stays open and silent. New ones pass.
    pub fn abandon(&self) {
        let mut present = self.shared.present();
        present.cancel();
        *present = CancellationToken::new();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn connect(client: TcpStream, target: String, shared: Arc<Shared>, abandoned: CancellationToken) {
    let weather = shared.weather.subscribe();
    match *weather.borrow() {
        Weather::Down => return,
        Weather::Clear | Weather::Slow(_) | Weather::Silent => {}
    }
    let Ok(server) = TcpStream::connect(&target).await else { return };
    // Small messages leave at once, as they would without us.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let was_abandoned = {
        let mut there = Way { from: from_client, weather: weather.clone(), shared: &shared, place: Cut::BeforeCommit };
        let mut back = Way { from: from_server, weather, shared: &shared, place: Cut::AfterCommit };
        let mut to_client = to_client;
        let ended = tokio::select! {
            () = there.pass(&mut to_server) => false,
            () = back.pass(&mut to_client) => false,
            () = abandoned.cancelled() => true,
        };
        from_server = back.from;
        ended
    };
    // The client's side is closed by now.
    if was_abandoned {
        let mut buffer = vec![0; BUFFER];
        while let Ok(1..) = from_server.read(&mut buffer).await {}
    }
    drop(to_server);
}

/// One direction of one connection.
struct Way<'a> {
    from: OwnedReadHalf,
    weather: watch::Receiver<Weather>,
    shared: &'a Shared,
    /// What this direction is cut at.
    place: Cut,
}

impl Way<'_> {
    async fn pass(&mut self, to: &mut OwnedWriteHalf) {
        let mut buffer = vec![0; BUFFER];
        let mut lossy = false;
        loop {
            let read = tokio::select! {
                read = self.from.read(&mut buffer) => read,
                changed = self.weather.changed() => {
                    // Whoever lost bytes cannot go on where it stopped.
                    if changed.is_err() || *self.weather.borrow() == Weather::Down || lossy {
                        return;
                    }
                    continue;
                }
            };
            let Ok(read @ 1..) = read else { return };
            let bytes = &buffer[..read];
            let weather = *self.weather.borrow_and_update();
            match weather {
                Weather::Down => return,
                Weather::Clear | Weather::Slow(_) if lossy => return,
                Weather::Silent => {
                    lossy = true;
                    continue;
                }
                Weather::Slow(by) => tokio::time::sleep(by).await,
                Weather::Clear => {}
            }
            let passes = self.up_to_the_cut(bytes);
            if to.write_all(&bytes[..passes]).await.is_err() || passes < read {
                return;
            }
        }
    }

    /// How many of the bytes pass: all, or those before the COMMIT that is cut.
    fn up_to_the_cut(&self, bytes: &[u8]) -> usize {
        let sign = match self.place {
            Cut::BeforeCommit => COMMITS,
            Cut::AfterCommit => COMMITTED,
        };
        // A sign that falls on the edge of two reads is passed over; the next one comes soon.
        match bytes.windows(sign.len()).position(|window| window == sign) {
            Some(at) if self.shared.cuts(self.place) => at,
            _ => bytes.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says everything back.
    async fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn call(line: &Line) -> TcpStream {
        TcpStream::connect(("127.0.0.1", line.port())).await.expect("connected")
    }

    /// What comes back within a moment: the bytes, an end, or silence.
    async fn hears(stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut buffer = [0; 64];
        let read = tokio::time::timeout(Duration::from_millis(300), stream.read(&mut buffer)).await.ok()?;
        Some(buffer[..read.unwrap_or(0)].to_vec())
    }

    async fn says(stream: &mut TcpStream, bytes: &[u8]) -> Option<Vec<u8>> {
        let _ = stream.write_all(bytes).await;
        hears(stream).await
    }

    #[tokio::test]
    async fn a_line_passes_delays_is_silent_and_goes_down() {
        let line = Line::lay(&echo().await).await.expect("a line");
        let mut stream = call(&line).await;
        assert_eq!(says(&mut stream, b"a").await, Some(b"a".to_vec()));
        line.weather(Weather::Slow(Duration::from_millis(20)));
        let begin = std::time::Instant::now();
        assert_eq!(says(&mut stream, b"b").await, Some(b"b".to_vec()));
        assert!(begin.elapsed() >= Duration::from_millis(40), "there and back");
        line.weather(Weather::Silent);
        assert_eq!(says(&mut stream, b"c").await, None);
        let mut other = call(&line).await;
        assert_eq!(says(&mut other, b"d").await, None);
        line.weather(Weather::Clear);
        assert_eq!(hears(&mut stream).await, Some(Vec::new()), "what was lost breaks the connection");
        assert_eq!(says(&mut call(&line).await, b"e").await, Some(b"e".to_vec()));
        line.weather(Weather::Down);
        assert_eq!(says(&mut call(&line).await, b"f").await, Some(Vec::new()));
    }

    #[tokio::test]
    async fn a_line_is_cut_around_a_commit_once() {
        let line = Line::lay(&echo().await).await.expect("a line");
        line.cut_at(Cut::BeforeCommit);
        let mut stream = call(&line).await;
        assert_eq!(says(&mut stream, b"begin\0").await, Some(b"begin\0".to_vec()));
        assert!(!line.was_cut());
        assert_eq!(says(&mut stream, b"Q\0\0\0\x0bcommit\0").await, Some(Vec::new()), "nothing comes back");
        assert!(line.was_cut());
        line.cut_at(Cut::AfterCommit);
        let mut stream = call(&line).await;
        let mut told = Vec::new();
        let _ = stream.write_all(&[b"data", COMMITTED].concat()).await;
        while let Some(part) = hears(&mut stream).await.filter(|part| !part.is_empty()) {
            told.extend(part);
        }
        assert_eq!((told.as_slice(), line.was_cut()), (b"data".as_slice(), true));
        assert_eq!(says(&mut call(&line).await, COMMITTED).await, Some(COMMITTED.to_vec()), "once");
    }
}
