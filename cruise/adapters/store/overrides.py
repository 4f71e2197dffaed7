"""What the operator sets: overrides of single workloads, and the pause of everything."""

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from cruise.adapters.store.documents import override_document, read_override
from cruise.adapters.store.tables import control, workload_override
from cruise.domain.annotations import Overrides
from cruise.domain.cluster import WorkloadRef


async def of_workloads(connection: AsyncConnection) -> dict[tuple[str, WorkloadRef], Overrides]:
    """Return the stored overrides by (namespace, workload)."""
    return {
        (row.namespace, WorkloadRef(row.workload_kind, row.workload_name)): read_override(row.override)
        for row in await connection.execute(select(workload_override))
    }


async def put(connection: AsyncConnection, namespace: str, workload: WorkloadRef, override: Overrides | None) -> None:
    """Store one override, or remove it with None."""
    key = {"namespace": namespace, "workload_kind": workload.kind, "workload_name": workload.name}
    if override is None:
        await connection.execute(delete(workload_override).filter_by(**key))
        return
    document = override_document(override)
    statement = insert(workload_override).values(**key, override=document)
    await connection.execute(statement.on_conflict_do_update(index_elements=list(key), set_={"override": document}))


async def paused(connection: AsyncConnection) -> bool:
    """Tell whether every write is stopped; false where nothing is stored."""
    return bool(await connection.scalar(select(control.c.paused)))


async def set_paused(connection: AsyncConnection, paused: bool) -> None:
    """Stop every write, or let them go on."""
    statement = insert(control).values(singleton=True, paused=paused)
    await connection.execute(statement.on_conflict_do_update(index_elements=["singleton"], set_={"paused": paused}))
