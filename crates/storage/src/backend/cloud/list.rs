//! Lists: names in ascending order; a list of one name is one request for one key.

use object_store::list::PaginatedListOptions;

use super::{CloudObjectStore, Effect, wire};
use crate::{Error, ErrorKind, Listed, ObjectInfo, ObjectName, Request, Result};

/// Most keys of one request: what S3 gives.
const PAGE_KEYS_MAX: usize = 1000;

/// Foreign keys that a list of one name steps over.
const FOREIGN_KEYS_MAX: usize = 16;

impl CloudObjectStore {
    pub(super) async fn list_names(&self, request: Request, prefix: &str, after: Option<&ObjectName>, limit: usize) -> Result<Listed> {
        let after = after.map(|name| self.bucket().key_text(name.as_str()));
        if limit == 0 {
            let any = self.page(request, prefix, after, 1).await?;
            return Ok(Listed { more: !any.objects.is_empty(), objects: Vec::new() });
        }
        if limit == 1 {
            self.first(request, prefix, after).await
        } else {
            self.page(request, prefix, after, limit.min(PAGE_KEYS_MAX)).await
        }
    }

    /// The smallest name. A key before it that is no name of ours is stepped over; that it is still the first in the end shows that nothing
    /// came before it meanwhile.
    async fn first(&self, request: Request, prefix: &str, after: Option<String>) -> Result<Listed> {
        let (mut from, mut foreign) = (after.clone(), None);
        for _ in 0..FOREIGN_KEYS_MAX {
            let page = self.keys(request, prefix, from, 1).await?;
            let Some(key) = page.last.filter(|_| page.listed.objects.is_empty()) else {
                let Some(foreign) = foreign else { return Ok(page.listed) };
                if self.keys(request, prefix, after, 1).await?.last == Some(foreign) {
                    return Ok(page.listed);
                }
                return Err(Error::new(ErrorKind::Retry, "names changed while foreign objects before them were stepped over"));
            };
            foreign.get_or_insert(key.clone());
            from = Some(key);
        }
        Err(Error::new(ErrorKind::Invalid, format!("{FOREIGN_KEYS_MAX} keys under {prefix:?} are no names of objects"))
            .object(self.bucket().place(prefix))
            .advice("give the database a prefix of its own, and move away what is not its own"))
    }

    /// A page, put together from as many requests as foreign keys make necessary.
    async fn page(&self, request: Request, prefix: &str, mut after: Option<String>, limit: usize) -> Result<Listed> {
        let mut objects: Vec<ObjectInfo> = Vec::new();
        loop {
            let page = self.keys(request, prefix, after, limit - objects.len()).await?;
            let more = page.listed.more;
            objects.extend(page.listed.objects);
            after = page.last;
            if !more || after.is_none() || objects.len() >= limit {
                return Ok(Listed { objects, more });
            }
        }
    }

    /// One request for at most `count` keys.
    async fn keys(&self, request: Request, prefix: &str, after: Option<String>, count: usize) -> Result<Page> {
        const DOING: &str = "listing objects";
        let (client, prefix) = (self.client(), self.bucket().key_text(prefix));
        let place = self.bucket().place("");
        // Azure counts the name to start after, which is then left out.
        let asked = count + usize::from(after.is_some() && self.bucket().counts_the_offset());
        let (asked_prefix, asked_after) = (prefix.clone(), after.clone());
        let work = async move {
            let prefix = Some(asked_prefix.as_str()).filter(|prefix| !prefix.is_empty());
            let options = PaginatedListOptions { offset: asked_after, max_keys: Some(asked), ..PaginatedListOptions::default() };
            wire::listen(client.list_paginated(prefix, options)).await.map_err(|failure| failure.error(DOING, &place))
        };
        let found = self.run(request, DOING, Effect::Nothing, work).await?;
        let more = found.page_token.is_some() || found.result.objects.len() > count;
        let mut page = Page { listed: Listed { objects: Vec::new(), more }, last: after };
        let before = page.last.clone();
        for meta in found.result.objects.iter().take(count) {
            let key = meta.location.as_ref();
            // A key that ends in a slash, as consoles make for folders, comes without it: it seems to lie outside, or to come again.
            if !key.starts_with(&prefix) || Some(key) == before.as_deref() {
                page.last = Some(format!("{key}/"));
                continue;
            }
            page.last = Some(key.to_owned());
            let name = self.bucket().name(key).and_then(|name| ObjectName::new(name).ok());
            page.listed.objects.extend(name.map(|name| ObjectInfo { name, length: meta.size }));
        }
        if found.result.objects.is_empty() {
            page.last = None;
        }
        Ok(page)
    }
}

/// What one request gave.
struct Page {
    /// The names among the keys; whether more keys follow.
    listed: Listed,
    /// The last key, to go on after; `None` when there was none.
    last: Option<String>,
}
