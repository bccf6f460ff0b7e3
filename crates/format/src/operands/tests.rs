use super::*;

#[test]
fn a_list_reads_back() {
    let mut list = OperandList::default();
    for operand in [&b"one"[..], b"", b"three"] {
        list.push(operand);
    }
    let bytes = list.finish();
    assert_eq!(operands(&bytes), Ok(vec![&b"one"[..], b"", b"three"]));
    assert_eq!(bytes.len(), LIST_HEADER_BYTES + 3 * OPERAND_HEADER_BYTES + 8);
}

#[test]
fn what_is_no_list_is_refused() {
    let mut list = OperandList::default();
    assert!(operands(&list.clone().finish()).is_err(), "an empty list");
    list.push(b"one");
    let bytes = list.finish();
    for end in 0..bytes.len() {
        assert!(operands(&bytes[..end]).is_err(), "cut at {end}");
    }
    assert!(operands(&[&bytes[..], b"x"].concat()).is_err(), "one byte more");
    assert!(operands(&[0xff; 12]).is_err(), "a count that nothing can hold");
}
