//! The two listeners of a process, bound before its services start so that they can be told their own address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use tokio::net::TcpListener;

use super::Error;
use crate::config::ServerSettings;

/// Both listeners of a process. Connections wait in their backlog until [`serve`](super::serve) takes them.
#[derive(Debug)]
pub struct Bound {
    /// Where gRPC listens.
    pub grpc: SocketAddr,
    /// Where the admin port listens.
    pub admin: SocketAddr,
    pub(super) grpc_listener: TcpListener,
    pub(super) admin_listener: TcpListener,
}

impl Bound {
    /// Endpoint under which this process reaches itself.
    #[must_use]
    pub fn own_endpoint(&self) -> String {
        format!("http://{}", reachable(self.grpc))
    }
}

/// Binds both listeners of the section `[server]`.
///
/// # Errors
/// [`Error::Bind`] names the address.
pub async fn bind(settings: &ServerSettings) -> Result<Bound, Error> {
    let (grpc_listener, grpc) = listen(&settings.address).await?;
    let (admin_listener, admin) = listen(&settings.admin_address).await?;
    Ok(Bound { grpc, admin, grpc_listener, admin_listener })
}

async fn listen(address: &str) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Bind { address: address.to_owned(), source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// A process that listens everywhere reaches itself on the loopback interface.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// Tells others where we listen. The file appears whole or not at all.
pub(super) fn write_port_file(path: &Path, grpc: SocketAddr, admin: SocketAddr) -> Result<(), Error> {
    let text = serde_json::json!({ "grpc": grpc.to_string(), "admin": admin.to_string() }).to_string();
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    std::fs::write(&beside, text)
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|source| Error::PortFile { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_listens_everywhere_reaches_itself_on_loopback() {
        for (bound, own) in [("0.0.0.0:7", "127.0.0.1:7"), ("[::]:7", "[::1]:7"), ("10.1.1.1:7", "10.1.1.1:7")] {
            assert_eq!(reachable(bound.parse().expect("an address")).to_string(), own);
        }
    }

    #[test]
    fn the_port_file_holds_both_addresses() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ports.json");
        let address = |text: &str| text.parse().expect("an address");
        write_port_file(&path, address("127.0.0.1:1"), address("127.0.0.1:2")).expect("written");
        let text = std::fs::read_to_string(&path).expect("there");
        assert_eq!(text, r#"{"admin":"127.0.0.1:2","grpc":"127.0.0.1:1"}"#);
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
