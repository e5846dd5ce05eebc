//! The admin port: metrics and probes. It asks for no token, so it listens where only operators reach it.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;

use super::readiness::Readiness;
use crate::metrics::Metrics;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(super) fn router(metrics: Metrics, readiness: Readiness) -> Router {
    Router::new()
        .route("/metrics", get(move || async move { ([(CONTENT_TYPE, OPEN_METRICS)], metrics.encode()) }))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz).with_state(readiness))
}

/// 200 when every service is ready, otherwise 503 and one line for each reason.
async fn readyz(State(readiness): State<Readiness>) -> impl IntoResponse {
    let problems = readiness.problems().await;
    if problems.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, problems.join("\n") + "\n")
}
