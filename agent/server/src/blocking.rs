//! Work of requests on threads that may block.

use tokio::task::spawn_blocking;
use tracing::Span;

use super::error::ApiError;

/// Does work of the current request on a thread that may block. Log events of the work have the request's ID.
///
/// # Errors
/// The thread ends without a result. The cause is logged.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    let span = Span::current();
    spawn_blocking(move || span.in_scope(work)).await.map_err(ApiError::internal)
}
