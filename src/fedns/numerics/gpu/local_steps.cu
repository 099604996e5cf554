// Mini-batch steps that every client takes by itself: a block for each client, which walks through its own order of rows.

#define WARPS 8

// A fresh permutation for this epoch, by Fisher and Yates: one thread, since every exchange depends on those before.
__device__ void shuffle(word key0, word key1, long long epoch, long long count, long long *order) {
    for (long long i = 0; i < count; i++) order[i] = i;
    for (long long i = count - 1; i > 0; i--) {
        const word bits = random_bits(key0, key1, epoch * count + i) >> 11;
        const long long j = (long long)((double)bits * (1.0 / 9007199254740992.0) * (double)(i + 1));
        const long long kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
}

extern "C" __global__ void local_steps(const double *rows, const double *y, const double *s, const double *totals,
                                       const long long *starts, const long long *stops, int features,
                                       const double *points, int points_stride, const double *diagonal, double proximal,
                                       double rate, const long long *steps, long long batch_size, const word *keys,
                                       const long long *order_starts, long long *orders, double *slopes, double *out) {
    const long long client = blockIdx.x, begin = starts[client], population = stops[client] - begin;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const double *start = points + client * points_stride;
    double *u = out + client * features, *slope = slopes + client * batch_size;
    long long *order = orders + order_starts[client];
    for (int c = threadIdx.x; c < features; c += blockDim.x) u[c] = start[c];
    long long position = population, epoch = 0;
    for (long long step = 0; step < steps[client]; step++) {
        __syncthreads();
        if (position == population) {
            if (threadIdx.x == 0) shuffle(keys[2 * client], keys[2 * client + 1], epoch, population, order);
            position = 0, epoch++;
            __syncthreads();
        }
        const long long count = min(batch_size, population - position);
        const double scale = (double)population / ((double)count * totals[client]);
        for (long long i = warp; i < count; i += WARPS) {
            const long long row = begin + order[position + i];
            double z = 0.0;
            for (int c = lane; c < features; c += 32) z += rows[row * features + c] * u[c];
            for (int distance = 16; distance; distance /= 2) z += __shfl_xor_sync(~0u, z, distance);
            if (lane == 0) slope[i] = loss_slope(y[row], z) * (s == nullptr ? scale : scale * s[row]);
        }
        __syncthreads();
        for (int c = threadIdx.x; c < features; c += blockDim.x) {
            double gradient = 0.0;
            for (long long i = 0; i < count; i++) gradient += slope[i] * rows[(begin + order[position + i]) * features + c];
            u[c] -= rate * (gradient + diagonal[c] * u[c] + proximal * (u[c] - start[c]));
        }
        position += count;
    }
}
