use super::{Call, Reply};

#[test]
fn calls_and_replies_arrive_as_they_were_sent() {
    let calls = [
        Call::Create { kind: 17 },
        Call::Set { descriptor: u64::MAX, name: -1, kind: 3, count: 2, bytes: vec![7; 16] },
        Call::Finalize { descriptor: 1 },
        Call::Get { descriptor: 2, name: 402, kind: 3, count: 1, bytes: vec![0; 8] },
        Call::Destroy { descriptor: 3 },
    ];
    let mut wire = Vec::new();
    calls.iter().for_each(|call| call.send(&mut wire).unwrap());
    let mut from = wire.as_slice();
    for call in calls {
        assert_eq!(Call::receive(&mut from).unwrap(), Some(call));
    }
    assert_eq!(Call::receive(&mut from).unwrap(), None);
    let reply = Reply { status: 3000, count: -1, bytes: vec![1, 2] };
    let mut wire = Vec::new();
    reply.send(&mut wire).unwrap();
    assert_eq!(Reply::receive(&mut wire.as_slice()).unwrap(), reply);
}

#[test]
fn a_damaged_message_is_an_error_and_takes_no_memory() {
    let mut wire = Vec::new();
    Call::Set { descriptor: 1, name: 1, kind: 1, count: 1, bytes: vec![1; 8] }.send(&mut wire).unwrap();
    for end in 1..wire.len() {
        assert!(Call::receive(&mut &wire[..end]).is_err(), "{end}");
    }
    wire[25..33].fill(0xff); // a length without limit
    assert!(Call::receive(&mut wire.as_slice()).is_err());
    wire[0] = 9;
    assert!(Call::receive(&mut wire.as_slice()).is_err());
}
