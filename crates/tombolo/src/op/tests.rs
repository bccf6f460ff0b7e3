use super::*;

#[test]
fn a_ready_operation_needs_no_world() {
    assert_eq!(Op::ready(Ok(1)).wait().unwrap(), 1);
    assert_eq!(Op::ready(Ok(2)).try_take().unwrap().unwrap(), 2);
}
