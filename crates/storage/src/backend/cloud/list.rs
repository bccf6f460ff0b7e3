//! Lists: names in ascending order; a list of one name is one request for one key.

use object_store::list::PaginatedListOptions;

use super::{CloudObjectStore, wire};
use crate::backend::remote::Effect;
use crate::{Error, ErrorKind, Listed, ObjectInfo, ObjectName, Request, Result};

/// Most keys of one request: what S3 gives.
const PAGE_KEYS_MAX: usize = 1000;

/// Foreign keys that a list of one name steps over.
const FOREIGN_KEYS_MAX: usize = 16;

/// Pages without a key, one after another, that a list goes on behind. Azure gives them where its
/// partitions meet, and for directories.
const EMPTY_PAGES_MAX: usize = 256;

impl CloudObjectStore {
    pub(super) async fn list_names(
        &self,
        request: Request,
        prefix: &str,
        after: Option<&ObjectName>,
        limit: usize,
    ) -> Result<Listed> {
        if !ObjectName::may_begin_with(prefix) {
            return Ok(Listed { objects: Vec::new(), more: false });
        }
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

    /// The smallest name, at one moment: what took several requests is asked for once more, and
    /// believed when nothing changed.
    async fn first(&self, request: Request, prefix: &str, after: Option<String>) -> Result<Listed> {
        let found = self.walk_to_first(request, prefix, after.clone()).await?;
        if found.requests > 1 && self.walk_to_first(request, prefix, after).await?.last != found.last {
            return Err(Error::new(
                ErrorKind::Retry,
                "names changed while what lies before them was stepped over",
            )
            .object(self.place(prefix)));
        }
        Ok(found.listed)
    }

    /// The smallest name. Keys before it that are no names of ours are stepped over.
    async fn walk_to_first(&self, request: Request, prefix: &str, mut after: Option<String>) -> Result<Page> {
        let mut requests = 0;
        for _ in 0..FOREIGN_KEYS_MAX {
            let page = self.keys(request, prefix, after, 1).await?;
            requests += page.requests;
            if page.last.is_none() || !page.listed.objects.is_empty() {
                return Ok(Page { requests, ..page });
            }
            after = page.last;
        }
        Err(Error::new(
            ErrorKind::Invalid,
            format!("{FOREIGN_KEYS_MAX} keys under {prefix:?} are no names of objects"),
        )
        .object(self.place(prefix))
        .advice("give the database a prefix of its own, and move away what is not its own"))
    }

    fn place(&self, prefix: &str) -> String {
        self.bucket().place(prefix)
    }

    /// A page, put together from as many requests as foreign keys and short pages make necessary.
    async fn page(
        &self,
        request: Request,
        prefix: &str,
        mut after: Option<String>,
        limit: usize,
    ) -> Result<Listed> {
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

    /// At most `count` keys: one request, and more of them only behind pages that have no key and
    /// are not the last. Without a key there is none any more.
    async fn keys(
        &self,
        request: Request,
        prefix: &str,
        after: Option<String>,
        count: usize,
    ) -> Result<Page> {
        const DOING: &str = "listing objects";
        let (client, prefix) = (self.client(), self.bucket().key_text(prefix));
        let place = self.bucket().place("");
        // Its client leaves out the key that is the prefix itself. So it is asked for what begins
        // with less, from just before the prefix on, where no name of ours can be; what comes
        // behind the last key with the prefix is the end.
        let is_widened = self.bucket().counts_the_offset() && !prefix.is_empty() && !prefix.ends_with('/');
        // Azure counts the name to start after, which is then left out.
        let asked = count + usize::from(after.is_some() && self.bucket().counts_the_offset());
        let (mut asked_prefix, mut asked_after) = (prefix.clone(), after.clone());
        if is_widened {
            let last = asked_prefix.pop().map_or(0, |last| u32::from(last).saturating_sub(1));
            let before: String = asked_prefix.chars().chain(char::from_u32(last)).chain(['~']).collect();
            asked_after = asked_after.max(Some(before));
        }
        let work = async move {
            let prefix = Some(asked_prefix.as_str()).filter(|prefix| !prefix.is_empty());
            let mut page_token = None;
            for requests in 1..=EMPTY_PAGES_MAX {
                let options = PaginatedListOptions {
                    offset: asked_after.clone(),
                    max_keys: Some(asked),
                    page_token,
                    ..PaginatedListOptions::default()
                };
                let found = wire::listen(client.list_paginated(prefix, options))
                    .await
                    .map_err(|failure| failure.error(DOING, &place))?;
                if !found.result.objects.is_empty() || found.page_token.is_none() {
                    return Ok((found, requests));
                }
                page_token = found.page_token;
            }
            // A caller that took this for the end would miss the rest.
            Err(Error::new(
                ErrorKind::Retry,
                format!(
                    "{DOING}: {EMPTY_PAGES_MAX} pages without a key, and \
                the list goes on"
                ),
            )
            .object(&place)
            .advice(
                "try again later; if it stays, look for what else fills the bucket, or give the \
                    database a bucket of its own",
            ))
        };
        let (found, requests) = self.run(request, DOING, Effect::Nothing, work).await?;
        let more = found.page_token.is_some() || found.result.objects.len() > count;
        let mut page = Page { listed: Listed { objects: Vec::new(), more }, last: after, requests };
        let before = page.last.clone();
        for meta in found.result.objects.iter().take(count) {
            let key = meta.location.as_ref();
            if is_widened && key > prefix.as_str() && !key.starts_with(&prefix) {
                page.listed.more = false;
                page.last = page.last.filter(|_| !page.listed.objects.is_empty());
                return Ok(page);
            }
            // A key that ends in a slash, as consoles make for folders, comes without it: it seems
            // to lie outside, or to come again.
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

/// What a request gave, or several when pages were empty.
struct Page {
    /// The names among the keys; whether more keys follow.
    listed: Listed,
    /// The last key, to go on after; `None` when there was none.
    last: Option<String>,
    /// How many it took.
    requests: usize,
}
