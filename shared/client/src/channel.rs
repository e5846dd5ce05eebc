//! A channel to every address behind a name, looked up again and again.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use tonic::transport::channel::Change;
use tonic::transport::{Channel, Endpoint};

const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Changes of addresses that wait to be taken over.
const CHANGES: usize = 64;

/// Where the service is.
#[derive(Debug, Clone)]
pub struct Target {
    /// Host name and port; every address of the name is used.
    pub authority: String,
    /// How often the name is looked up.
    pub lookup_every: Duration,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
}

/// A channel that ends looking up when the last clone is gone.
#[derive(Debug)]
pub(crate) struct Balanced {
    pub(crate) channel: Channel,
    lookup: JoinHandle<()>,
}

impl Drop for Balanced {
    fn drop(&mut self) {
        self.lookup.abort();
    }
}

/// Looks up the name once before it returns, so that the first call has where to go if the name is known.
pub(crate) async fn open(target: Target) -> Balanced {
    let (channel, changes) = Channel::balance_channel(CHANGES);
    let mut known = BTreeSet::new();
    refresh(&target, &mut known, &changes).await;
    let lookup = tokio::spawn(async move {
        loop {
            tokio::time::sleep(target.lookup_every).await;
            refresh(&target, &mut known, &changes).await;
        }
    });
    Balanced { channel, lookup }
}

async fn refresh(target: &Target, known: &mut BTreeSet<SocketAddr>, changes: &Sender<Change<SocketAddr, Endpoint>>) {
    let found = match tokio::net::lookup_host(&target.authority).await {
        Ok(found) => found.collect::<BTreeSet<SocketAddr>>(),
        // The addresses of before are the best there is.
        Err(error) => return tracing::warn!(authority = target.authority, %error, "the name cannot be looked up"),
    };
    let (added, removed) = difference(known, &found);
    for address in added {
        let Ok(endpoint) = Endpoint::from_shared(format!("http://{address}")) else { continue };
        let endpoint = endpoint
            .connect_timeout(target.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        if changes.send(Change::Insert(address, endpoint)).await.is_ok() {
            known.insert(address);
        }
    }
    for address in removed {
        if changes.send(Change::Remove(address)).await.is_ok() {
            known.remove(&address);
        }
    }
}

/// What is new, and what is gone. A name without any address says nothing: then all stay.
fn difference(known: &BTreeSet<SocketAddr>, found: &BTreeSet<SocketAddr>) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
    if found.is_empty() {
        return (Vec::new(), Vec::new());
    }
    (found.difference(known).copied().collect(), known.difference(found).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_and_go_and_an_empty_answer_changes_nothing() {
        let set = |ports: &[u16]| ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect();
        let (known, found): (BTreeSet<SocketAddr>, BTreeSet<SocketAddr>) = (set(&[1, 2]), set(&[2, 3]));
        let (added, removed) = difference(&known, &found);
        let ports = |list: Vec<SocketAddr>| list.iter().map(SocketAddr::port).collect::<Vec<_>>();
        assert_eq!((ports(added), ports(removed)), (vec![3], vec![1]));
        assert_eq!(difference(&known, &set(&[])), (Vec::new(), Vec::new()));
    }
}
