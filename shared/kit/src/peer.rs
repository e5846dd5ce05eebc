//! Where a call comes from.

use std::net::IpAddr;

use tonic::Request;

/// The caller's address: that of the connection, or what the outermost of `trusted_proxies` proxies saw. Each proxy adds the
/// address of its own caller at the end of `x-forwarded-for`; what stands before that anybody may have written. A header with
/// fewer entries, or none that can be read, leaves the address of the connection.
#[must_use]
pub fn address<T>(request: &Request<T>, trusted_proxies: u8) -> Option<IpAddr> {
    let peer = request.remote_addr().map(|address| address.ip());
    if trusted_proxies == 0 {
        return peer;
    }
    let headers = request.metadata().get_all("x-forwarded-for");
    let entries: Vec<&str> = headers
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .collect();
    let place = entries.len().checked_sub(usize::from(trusted_proxies));
    place.and_then(|place| entries.get(place)?.parse().ok()).or(peer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_trusted_proxies_wrote_counts() {
        let told = |header: &str, proxies| {
            let mut request = Request::new(());
            request.metadata_mut().insert("x-forwarded-for", header.parse().expect("a header"));
            address(&request, proxies).map(|address| address.to_string())
        };
        assert_eq!(told("1.1.1.1, 2.2.2.2", 0), None, "no connection, no proxy");
        assert_eq!(told("1.1.1.1, 2.2.2.2", 1).as_deref(), Some("2.2.2.2"), "the first one anybody may have written");
        assert_eq!(told("1.1.1.1, 2.2.2.2", 2).as_deref(), Some("1.1.1.1"));
        assert_eq!(told("1.1.1.1", 2), None, "a proxy is missing");
        assert_eq!(told("2001:db8::1", 1).as_deref(), Some("2001:db8::1"));
        assert_eq!(told("somewhere", 1), None);
    }
}
