use super::{Network, WeightSlice};

const LSTM: Network =
    Network { gates: 4, biased: true, directions: 2, data_type: 0, input: 16, hidden: 32, projection: 0, layers: 2 };

#[test]
fn weights_lie_one_behind_the_other_and_fill_the_buffer() {
    for network in [
        LSTM,
        Network { biased: false, gates: 3, ..LSTM },
        Network { projection: 8, data_type: 9, ..LSTM },
        Network { layers: 1, directions: 1, gates: 1, ..LSTM },
    ] {
        let mut next = 0;
        let matrices = (0..network.all_layers()).flat_map(|layer| (0..9).map(move |part| (layer, part)));
        let biases = matrices.clone().map(|(layer, part)| network.bias(layer, part));
        for WeightSlice { start, rows, columns } in
            matrices.clone().map(|(layer, part)| network.matrix(layer, part)).chain(biases).flatten()
        {
            assert_eq!(start, next, "{network:?}");
            next += rows * columns;
        }
        assert_eq!(network.weights(), next * super::element(network.data_type), "{network:?}");
    }
}

#[test]
fn the_size_is_pytorchs_count_of_parameters() {
    // torch.nn.LSTM(16, 32, 2, bidirectional=True) has 37,888 parameters.
    assert_eq!(LSTM.weights(), 37_888 * 4);
}

/// What cuDNN 9.19 took on an H200 (driver 580) for training: the jobs `lstm`, `speech` and `multitask` of `bench/jobs`.
#[test]
fn temporary_buffers_are_those_of_an_h200() {
    let network = |data_type, input, hidden| Network { data_type, input, hidden, layers: 1, directions: 1, ..LSTM };
    for (network, sequence, workspace, reserve) in [
        (network(0, 1024, 1024), (128, 64), 246_153_984, 167_772_416),
        (network(9, 512, 512), (13, 44), 16_593_504, 2_928_896),
        (network(9, 512, 512), (24, 12), 14_487_904, 1_474_816),
        (network(9, 512, 512), (17, 34), 16_517_664, 2_959_616),
    ] {
        assert_eq!(network.temporary(sequence, true), (workspace, reserve), "{network:?}");
    }
    // Where the input is narrower than the state, 0.6 % of the workspace is not explained.
    let (workspace, reserve) = network(9, 512, 1024).temporary((17, 32), true);
    assert_eq!((workspace, reserve), (45_449_728 - 294_912, 5_570_816));
}
