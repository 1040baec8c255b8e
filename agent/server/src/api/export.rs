//! A run's figures as a CSV table.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    extract::State as Extract,
    http::{HeaderValue, header},
    response::Response,
};
use futures_util::stream::try_unfold;
use tracing::{Instrument, Span};

use super::path::RunId;
use crate::{
    State,
    archive::{Archive, asked},
    error::ApiError,
    figures,
};
use headroom_agent_core::store::printed::Cursor;

/// The next part of the table.
enum NextPart {
    Head,
    Rows(Cursor),
}

/// `GET /api/runs/{id}/export.csv`. The table is streamed, so memory use does not depend on the length of the run.
pub async fn csv(Extract(state): Extract<Arc<State>>, RunId(id): RunId) -> Result<Response, ApiError> {
    let run = id.clone();
    asked(&state.archive, move |archive| archive.run(&run)).await?;
    let name = format!("attachment; filename=\"headroom-{id}.csv\"");
    let first = (Arc::clone(&state.archive), id, Some(NextPart::Head), Span::current());
    let rows = try_unfold(first, async |(archive, id, next, span)| {
        let after = match next {
            None => return Ok::<_, std::io::Error>(None),
            Some(NextPart::Head) => {
                let head = Bytes::from_static(figures::HEAD.as_bytes());
                return Ok(Some((head, (archive, id, Some(NextPart::Rows(Cursor::default())), span))));
            }
            Some(NextPart::Rows(after)) => after,
        };
        let run = id.clone();
        let page = asked(&archive, move |archive: &dyn Archive| archive.printed(&run, after));
        // An aborted connection signals an incomplete table.
        let page = page.instrument(span.clone()).await.map_err(|error| {
            span.in_scope(|| error.log());
            std::io::Error::other("cannot read history")
        })?;
        let mut rows = String::new();
        page.lines.iter().for_each(|line| figures::add_row(&mut rows, line));
        Ok(Some((Bytes::from(rows), (archive, id, page.next.map(NextPart::Rows), span))))
    });
    let mut response = Response::new(Body::from_stream(rows));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8"));
    headers.insert(
        header::CONTENT_DISPOSITION,
        HeaderValue::try_from(name).unwrap_or(HeaderValue::from_static("attachment")),
    );
    Ok(response)
}
