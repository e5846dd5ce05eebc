//! The methods a process serves, as their contracts describe them.

use std::collections::HashMap;

use prost::Message as _;
use prost_types::FileDescriptorSet;

use super::Error;
use crate::metrics::{Labels, Metrics, SECONDS};

/// One method.
#[derive(Debug, Clone)]
pub(super) struct Method {
    /// `package.Service/Method`, the label of its metrics.
    pub(super) name: String,
    /// Whether the server answers with a stream.
    pub(super) server_streaming: bool,
    /// Whether the client sends a stream.
    pub(super) client_streaming: bool,
    pub(super) seconds: prometheus_client::metrics::histogram::Histogram,
}

/// Methods by path.
pub(super) struct Methods {
    by_path: HashMap<String, Method>,
    unknown: Method,
}

impl Methods {
    /// The methods of the services `names` among the encoded descriptor sets.
    pub(super) fn read(sets: &[&[u8]], names: &[&str], metrics: &Metrics) -> Result<Self, Error> {
        let took = metrics.histograms(
            "likewise_grpc_call_seconds",
            "Time from a call's arrival to the end of its answer, by method",
            SECONDS,
        );
        let method = |name: String, client_streaming, server_streaming| {
            let labels: Labels = vec![("method", name.clone())];
            Method { seconds: took.get_or_create_owned(&labels), name, server_streaming, client_streaming }
        };
        let mut by_path = HashMap::new();
        for set in sets {
            let set = FileDescriptorSet::decode(*set).map_err(Error::Descriptors)?;
            for file in set.file {
                for service in &file.service {
                    let service_name = format!("{}.{}", file.package(), service.name());
                    if !names.contains(&service_name.as_str()) {
                        continue;
                    }
                    for described in &service.method {
                        let name = format!("{service_name}/{}", described.name());
                        let path = format!("/{name}");
                        let method = method(name, described.client_streaming(), described.server_streaming());
                        by_path.insert(path, method);
                    }
                }
            }
        }
        Ok(Self { by_path, unknown: method("unknown".to_owned(), false, false) })
    }

    /// Whether a service with a method here was described.
    pub(super) fn knows(&self, service: &str) -> bool {
        self.by_path.keys().any(|path| path[1..].rsplit_once('/').is_some_and(|(name, _)| name == service))
    }

    /// Whether this stands for every method that nobody serves.
    pub(super) fn is_unknown(&self, method: &Method) -> bool {
        std::ptr::eq(method, &raw const self.unknown)
    }

    /// What is served at a path; a path of nobody counts as `unknown`.
    pub(super) fn at(&self, path: &str) -> &Method {
        self.by_path.get(path).unwrap_or(&self.unknown)
    }
}
