"""Which rank of a distributed job this process is, as its launcher says."""

from __future__ import annotations

from typing import Mapping

#: torchrun's name, then those of Slurm, Open MPI and MPICH.
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def of(environment: Mapping[str, str]) -> int | None:
    """The rank, from 0; None if nobody says."""
    rank = _first(_RANK, environment)
    return rank if rank is not None else local(environment)


def local(environment: Mapping[str, str]) -> int | None:
    """The rank among those of this machine, from 0; None if nobody says."""
    return _first(_LOCAL_RANK, environment)


def count(environment: Mapping[str, str]) -> int:
    """How many processes the launcher started; 1 if nobody says."""
    size = _first(_SIZE, environment)
    return 1 if size is None else size


def _first(names: tuple[str, ...], environment: Mapping[str, str]) -> int | None:
    return next((int(value) for name in names if (value := environment.get(name, "")).isdecimal()), None)
