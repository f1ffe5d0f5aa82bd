/* graph.c: captured work that can be launched again and again. A graph is a list in the order of capture: the work of
 * joined streams runs one after another, which is a valid order. */
#include "sim.h"

struct CUgraph_st {
    op_list list;
};

struct CUgraphExec_st {
    op_list list;
};

lz_cu_result graph_from(op_list *list, lz_cu_graph *graph) {
    lz_cu_graph g = calloc(1, sizeof *g);
    if (!g) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    g->list = *list;
    *list = (op_list){0};
    count_live(GRAPH, 1);
    *graph = g;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuGraphGetNodes(lz_cu_graph graph, lz_cu_graph_node *nodes, size_t *count) {
    ENTER(INITIALISED | MAY_FAIL);
    if (!graph) return LZ_CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; nodes && i < *count; i++)
        nodes[i] = i < graph->list.n ? (lz_cu_graph_node)&graph->list.ops[i] : NULL;
    if (!nodes || *count > graph->list.n) *count = graph->list.n;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuGraphDestroy(lz_cu_graph graph) {
    ENTER(INITIALISED);
    if (!graph) return LZ_CUDA_ERROR_INVALID_VALUE;
    list_clear(&graph->list);
    free(graph);
    count_live(GRAPH, -1);
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuGraphInstantiateWithFlags(lz_cu_graph_exec *exec, lz_cu_graph graph, unsigned long long flags) {
    (void)flags;
    ENTER(NORMAL);
    if (!graph) return LZ_CUDA_ERROR_INVALID_VALUE;
    lz_cu_graph_exec e = calloc(1, sizeof *e);
    if (!e || !list_copy(&e->list, &graph->list)) {
        free(e);
        return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    }
    count_live(GRAPH_EXEC, 1);
    *exec = e;
    return LZ_CUDA_SUCCESS;
}

/* The same kinds in the same order; functions, parameters, addresses and sizes may differ. */
lz_cu_result cuGraphExecUpdate_v2(lz_cu_graph_exec exec, lz_cu_graph graph, lz_cu_update_info *info) {
    ENTER(NORMAL);
    if (!exec || !graph || !info) return LZ_CUDA_ERROR_INVALID_VALUE;
    *info = (lz_cu_update_info){.result = LZ_CU_GRAPH_EXEC_UPDATE_SUCCESS};
    if (exec->list.n != graph->list.n) info->result = LZ_CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; !info->result && i < graph->list.n; i++) {
        if (exec->list.ops[i].kind == graph->list.ops[i].kind) continue;
        info->result = LZ_CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
        info->node = (lz_cu_graph_node)&graph->list.ops[i];
    }
    if (info->result) return LZ_CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    op_list fresh = {0};
    if (!list_copy(&fresh, &graph->list)) return LZ_CUDA_ERROR_OUT_OF_MEMORY;
    list_clear(&exec->list);
    exec->list = fresh;
    return LZ_CUDA_SUCCESS;
}

lz_cu_result cuGraphLaunch(lz_cu_graph_exec exec, lz_cu_stream stream) {
    ENTER(NORMAL);
    return exec ? enqueue_list(stream, &exec->list) : LZ_CUDA_ERROR_INVALID_VALUE;
}

lz_cu_result cuGraphExecDestroy(lz_cu_graph_exec exec) {
    ENTER(INITIALISED);
    if (!exec) return LZ_CUDA_ERROR_INVALID_VALUE;
    list_clear(&exec->list);
    free(exec);
    count_live(GRAPH_EXEC, -1);
    return LZ_CUDA_SUCCESS;
}
