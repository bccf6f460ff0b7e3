//! Several ranges of an object as few requests: neighbours share one, and what lies between them is
//! read along.

use std::ops::Range;

use bytes::Bytes;

/// Bytes of one request that is put together from several ranges.
const SPAN_BYTES_MAX: u64 = 8 << 20;

/// A request, and the ranges that it serves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) range: Range<u64>,
    /// Indexes of the ranges.
    pub(crate) serves: Vec<usize>,
}

/// Which requests read `ranges`, in order of offset: near ones together, with at most
/// `gap_bytes_max` in each request that nobody asked for. Empty ranges need none.
pub(crate) fn plan(ranges: &[Range<u64>], gap_bytes_max: u64) -> Vec<Span> {
    let mut order: Vec<usize> =
        (0..ranges.len()).filter(|index| ranges[*index].start < ranges[*index].end).collect();
    order.sort_unstable_by_key(|index| ranges[*index].start);
    let mut spans: Vec<Span> = Vec::new();
    let mut gaps_left = gap_bytes_max;
    for index in order {
        let range = ranges[index].clone();
        let gap = spans.last().map_or(u64::MAX, |last| range.start.saturating_sub(last.range.end));
        match spans.last_mut() {
            Some(last)
                if gap <= gaps_left && range.end.max(last.range.end) - last.range.start <= SPAN_BYTES_MAX =>
            {
                gaps_left -= gap;
                last.range.end = last.range.end.max(range.end);
                last.serves.push(index);
            }
            _ => {
                gaps_left = gap_bytes_max;
                spans.push(Span { range, serves: vec![index] });
            }
        }
    }
    spans
}

/// A request for each of `ranges` that is not empty.
pub(crate) fn each_alone(ranges: &[Range<u64>]) -> Vec<Span> {
    let ranges = ranges.iter().cloned().enumerate().filter(|(_, range)| range.start < range.end);
    ranges.map(|(index, range)| Span { range, serves: vec![index] }).collect()
}

/// What of `bytes`, which begin at `start` of the object, lies in `range`.
pub(crate) fn cut(bytes: &Bytes, start: u64, range: &Range<u64>) -> Bytes {
    let at = |position: u64| {
        usize::try_from(position.saturating_sub(start)).unwrap_or(usize::MAX).min(bytes.len())
    };
    bytes.slice(at(range.start)..at(range.end).max(at(range.start)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GAP_BYTES_MAX: u64 = 64 << 10;

    fn spans(ranges: &[Range<u64>]) -> Vec<(Range<u64>, Vec<usize>)> {
        plan(ranges, GAP_BYTES_MAX).into_iter().map(|span| (span.range, span.serves)).collect()
    }

    #[test]
    fn neighbours_share_a_request_and_others_do_not() {
        let far = GAP_BYTES_MAX + 1;
        assert_eq!(spans(&[]), []);
        assert_eq!(spans(&[5..5, Range { start: 9, end: 3 }]), []);
        assert_eq!(spans(&[100..200, 0..50, 150..300]), [(0..300, vec![1, 0, 2])]);
        assert_eq!(spans(&[0..10, 10 + far..20 + far]), [(0..10, vec![0]), (10 + far..20 + far, vec![1])]);
        assert_eq!(spans(&[0..10, 10 + GAP_BYTES_MAX..20 + GAP_BYTES_MAX]).len(), 1);
        let thirds: Vec<_> = (0..6)
            .map(|number| number * (GAP_BYTES_MAX / 3 + 1)..number * (GAP_BYTES_MAX / 3 + 1) + 1)
            .collect();
        assert_eq!(spans(&thirds).len(), 2, "gaps add up");
        let half = SPAN_BYTES_MAX / 2;
        assert_eq!(spans(&[0..half, half..2 * half, 2 * half..2 * half + 1]).len(), 2);
        assert_eq!(spans(&[0..u64::MAX, 7..9]).len(), 2, "a range without an end stands alone");
        assert_eq!(
            each_alone(&[0..2, 2..2, 2..4]).iter().map(|span| span.serves[0]).collect::<Vec<_>>(),
            [0, 2]
        );
    }

    #[test]
    fn pieces_are_cut_at_the_objects_end() {
        let bytes = Bytes::from_static(b"0123456789");
        assert_eq!(cut(&bytes, 100, &(102..104)), "23");
        assert_eq!(cut(&bytes, 100, &(108..200)), "89");
        assert_eq!(cut(&bytes, 100, &(150..200)), "");
    }
}
