//! A run's figures as a table for other programs.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    extract::{Path, State as Extract},
    http::{HeaderValue, header},
    response::Response,
};
use futures_util::stream::try_unfold;

use super::query;
use crate::{
    figures,
    server::{
        State,
        archive::{Archive, asked},
        error::Refusal,
    },
    store::printed::Cursor,
};

/// What is sent next.
enum Next {
    Head,
    Rows(Cursor),
}

/// `GET /api/runs/{id}/export.csv`: written as it is read, so that a run of days takes no more memory than one of
/// minutes.
pub async fn csv(Extract(state): Extract<Arc<State>>, Path(id): Path<String>) -> Result<Response, Refusal> {
    let id = query::run(id)?;
    let run = id.clone();
    asked(&state.archive, move |archive| archive.run(&run)).await?;
    let name = format!("attachment; filename=\"headroom-{id}.csv\"");
    let first = (Arc::clone(&state.archive), id, Some(Next::Head));
    let rows = try_unfold(first, async |(archive, id, next)| {
        let after = match next {
            None => return Ok::<_, std::io::Error>(None),
            Some(Next::Head) => {
                let head = Bytes::from_static(figures::HEAD.as_bytes());
                return Ok(Some((head, (archive, id, Some(Next::Rows(Cursor::default()))))));
            }
            Some(Next::Rows(after)) => after,
        };
        let run = id.clone();
        let page = asked(&archive, move |archive: &dyn Archive| archive.printed(&run, after));
        // A connection that breaks off says that the table is not whole.
        let page = page.await.map_err(|_| std::io::Error::other("cannot read history"))?;
        let mut rows = String::new();
        page.lines.iter().for_each(|line| figures::add_row(&mut rows, line));
        Ok(Some((Bytes::from(rows), (archive, id, page.next.map(Next::Rows)))))
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
