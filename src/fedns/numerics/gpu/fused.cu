// Gradient and sketch of narrow rows in one read of the memory. A block has a piece of a client's rows; each of its groups
// of threads, one thread for each PER_THREAD features, takes every GROUPS-th tile of it and keeps sums of its own, which are
// added up in the order of the groups. No two threads add to the same number: no atomics, always the same bits.
//
// The includer defines: REAL (type of the stored rows), DOUBLES (whether it is that), COLUMNS, FEATURES (one more with an intercept, at most 128), KIND,
// SIZE (rows of the sketch), GROUPS, TILE (rows, at most 32), STAGES (tiles on their way, 1 or 2), WEIGHTED, VALUE, and the
// functions loss_value(y, z) and loss_derivatives(y, z, slope, curvature).

#define PER_THREAD (KIND != NO_SKETCH && KIND != SJLT && FEATURES > 32 ? 2 : 1)  // two share what is read of the sketch
#define THREADS ((FEATURES + 32 * PER_THREAD - 1) / (32 * PER_THREAD) * 32)      // of a group
#define TILE_BYTES ((TILE * COLUMNS * (int)sizeof(REAL) + 15) / 16 * 16 + 16)
#define EVEN_SIZE ((SIZE + 1) / 2 * 2 + ((SIZE + 1) / 2 % 2 ? 0 : 2))  // no multiple of 4: rows then start in other banks
#define CELLS ((SIZE + 1) * FEATURES)  // of a group's sums: gradient, then sketch
#define KEPT (KIND == SJLT || KIND == NO_SKETCH ? 1 : SIZE + 1)  // sums that a thread has in registers, for each feature
#define COEFFICIENTS (KIND == NO_SKETCH || KIND == SJLT ? 0 : TILE * EVEN_SIZE)
#define GROUP_BYTES (STAGES * TILE_BYTES + 8 * ((CELLS + 1) / 2 * 2 + COEFFICIENTS + 2 * TILE) + 4 * TILE)

// Rows of an even number of doubles start at whole 16-byte words, and unless they are whole banks, lanes then read them two
// numbers at a time without waiting for each other.
#define WIDE_LOADS (DOUBLES && COLUMNS % 2 == 0 && COLUMNS % 8 != 0)

struct Group {
    char *tiles;           // STAGES of TILE_BYTES
    double *sums;          // (SIZE + 1, FEATURES)
    double *coefficients;  // (TILE, EVEN_SIZE) of the sketch
    double2 *weights;      // (TILE): slope, and the signed root of the curvature
    int *cell;             // (TILE): where the row's output of the sketch starts
};

__device__ void wait_for_group(int group) {
    if (THREADS == 32)
        __syncwarp();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(THREADS) : "memory");
}

__device__ void copy_tile(char *tile, const REAL *rows, long long first, int count, int thread) {
    const char *from = (const char *)(rows + first * COLUMNS);
    const int skip = (int)((unsigned long long)from & 15);  // whole 16-byte words; the rows have room after the last
    const int words = (skip + count * COLUMNS * (int)sizeof(REAL) + 15) / 16;
    const unsigned target = (unsigned)__cvta_generic_to_shared(tile);
    for (int word = thread; word < words; word += THREADS)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target + 16 * word), "l"(from - skip + 16 * word));
}

__device__ const REAL *in_tile(const char *tile, const REAL *rows, long long first) {
    return (const REAL *)(tile + ((unsigned long long)(rows + first * COLUMNS) & 15));
}

__device__ double margin(const REAL *row, const double *w, int lane) {
    double a = 0.0, b = 0.0;
#if WIDE_LOADS
#pragma unroll
    for (int c = 0; c < COLUMNS; c += 2) {
        const double2 x = *(const double2 *)(row + c), v = *(const double2 *)(w + c);
        a += x.x * v.x;
        b += x.y * v.y;
    }
    return a + b + (FEATURES > COLUMNS ? w[COLUMNS] : 0.0);
#endif
    int c = COLUMNS % 8 ? 0 : lane % COLUMNS;  // lanes start apart where a row is whole banks
#pragma unroll
    for (int j = 0; j + 1 < COLUMNS; j += 2) {
        a += (double)row[c] * w[c];
        c = c + 1 == COLUMNS ? 0 : c + 1;
        b += (double)row[c] * w[c];
        c = c + 1 == COLUMNS ? 0 : c + 1;
    }
    if (COLUMNS % 2) a += (double)row[c] * w[c];
    return a + b + (FEATURES > COLUMNS ? w[COLUMNS] : 0.0);
}

__device__ double entry(const REAL *tile, int i, int c) { return c < COLUMNS ? (double)tile[i * COLUMNS + c] : 1.0; }

// Four rows at a time: their outputs are loaded before any is stored, and a later row takes over what an earlier one made.
__device__ void add_to_cells(Group own, const REAL *tile, int count, int c, double &gradient) {
    int i = 0;
    for (; i + 4 <= count; i += 4) {
        double x[4], v[4];
        double2 weights[4];
        const int4 cells = *(const int4 *)(own.cell + i);
        const int cell[4] = {cells.x, cells.y, cells.z, cells.w};
#pragma unroll
        for (int j = 0; j < 4; j++) {
            x[j] = entry(tile, i + j, c);
            weights[j] = own.weights[i + j];
            v[j] = own.sums[cell[j] + c];
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            gradient += weights[j].x * x[j];
#pragma unroll
            for (int earlier = 0; earlier < j; earlier++) v[j] = cell[earlier] == cell[j] ? v[earlier] : v[j];
            v[j] += weights[j].y * x[j];
            own.sums[cell[j] + c] = v[j];
        }
    }
    for (; i < count; i++) {
        const double x = entry(tile, i, c);
        gradient += own.weights[i].x * x;
        own.sums[own.cell[i] + c] += own.weights[i].y * x;
    }
}

__device__ void add_to_registers(Group own, const REAL *tile, int count, int c, double (*sums)[KEPT]) {
#pragma unroll 4
    for (int i = 0; i < count; i++) {
        double x[PER_THREAD];
#pragma unroll
        for (int q = 0; q < PER_THREAD; q++) {
            x[q] = c + q * THREADS < FEATURES ? entry(tile, i, c + q * THREADS) : 0.0;
            sums[q][0] += own.weights[i].x * x[q];
        }
#pragma unroll
        for (int r = 0; r < (KIND == NO_SKETCH ? 0 : SIZE); r += 2) {
            const double2 pair = *(const double2 *)(own.coefficients + i * EVEN_SIZE + r);
#pragma unroll
            for (int q = 0; q < PER_THREAD; q++) {
                sums[q][1 + r] += pair.x * x[q];
                if (r + 1 < SIZE) sums[q][2 + r] += pair.y * x[q];
            }
        }
    }
}

// A block for each piece, whose sums go to `partial` (pieces, 1 + CELLS): the value, the gradient, the sketch.
extern "C" __global__ void __launch_bounds__(GROUPS *THREADS)
    fused_pass(const REAL *rows, const double *y, const double *s, const double *totals, const long long *pieces,
               const double *points, int points_stride, const word *keys, const long long *chosen, const long long *sizes,
               double *partial) {
    extern __shared__ __align__(16) char shared[];
    __shared__ __align__(16) double w[FEATURES];
    __shared__ double values[GROUPS];
    const int c = threadIdx.x % THREADS, group = threadIdx.x / THREADS;
    const Piece piece = piece_of(pieces, blockIdx.x);
    const double scale = 1.0 / totals[piece.client];
    for (int f = threadIdx.x; f < FEATURES; f += blockDim.x) w[f] = points[piece.client * points_stride + f];

    char *area = shared + group * GROUP_BYTES;
    Group own = {area, (double *)(area + STAGES * TILE_BYTES)};
    own.coefficients = own.sums + (CELLS + 1) / 2 * 2;
    own.weights = (double2 *)(own.coefficients + COEFFICIENTS);
    own.cell = (int *)(own.weights + TILE);
    for (int e = c; e < CELLS; e += THREADS) own.sums[e] = 0.0;
    double sums[PER_THREAD][KEPT] = {}, value = 0.0;
    Draw draw = draw_of(keys, chosen, sizes, piece.client, SIZE);
#if KIND == SRHT
    __shared__ long long nearby[SIZE];
    for (int r = threadIdx.x; r < SIZE; r += blockDim.x) nearby[r] = draw.chosen[r];
    draw.chosen = nearby;
#endif
    __syncthreads();

    const long long stride = (long long)TILE * GROUPS;
    long long first = piece.first + (long long)group * TILE, coming = first;
    int turn = 0;
    for (int stage = 0; stage < STAGES - 1; stage++, coming += stride) {
        if (coming < piece.last) copy_tile(own.tiles, rows, coming, (int)min((long long)TILE, piece.last - coming), c);
        asm volatile("cp.async.commit_group;");
    }
    double target = 0.0, sample_weight = 1.0;
    if (c < TILE && first + c < piece.last) {
        target = y[first + c];
        if (WEIGHTED) sample_weight = s[first + c];
    }
    for (; first < piece.last; first += stride, coming += stride) {
        const int count = (int)min((long long)TILE, piece.last - first);
        if (coming < piece.last)
            copy_tile(own.tiles + (STAGES == 2 ? turn ^ 1 : 0) * TILE_BYTES, rows, coming,
                      (int)min((long long)TILE, piece.last - coming), c);
        asm volatile("cp.async.commit_group;");
        double next_target = 0.0, next_weight = 1.0;
        if (c < TILE && first + stride + c < piece.last) {
            next_target = y[first + stride + c];
            if (WEIGHTED) next_weight = s[first + stride + c];
        }
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1));
        wait_for_group(group);
        const REAL *tile = in_tile(own.tiles + turn * TILE_BYTES, rows, first);
        if (c < count) {
            const long long position = first + c - piece.begin;
            const double z = margin(tile + c * COLUMNS, w, c);
            const double weight = WEIGHTED ? sample_weight * scale : scale;
            double slope, curvature, root = 0.0;
            loss_derivatives(target, z, slope, curvature);
            if (VALUE) value += weight * loss_value(target, z);
#if KIND == SJLT
            const word bits = random_bits(draw.key0, draw.key1, position);
            own.cell[c] = (1 + (int)(((bits >> 32) * (word)SIZE) >> 32)) * FEATURES;
            root = (bits & 1 ? -1.0 : 1.0) * sqrt(curvature * weight);
#elif KIND != NO_SKETCH
            double *coefficients = own.coefficients + c * EVEN_SIZE;
            sketch_column(KIND, draw, position, SIZE, sqrt(curvature * weight), coefficients);
            if (SIZE % 2) coefficients[SIZE] = 0.0;
#endif
            own.weights[c] = {slope * weight, root};
        }
        wait_for_group(group);
        if (c < FEATURES) {
            if (KIND == SJLT)
                add_to_cells(own, tile, count, c, sums[0][0]);
            else
                add_to_registers(own, tile, count, c, sums);
        }
        wait_for_group(group);
        target = next_target, sample_weight = next_weight;
        if (STAGES == 2) turn ^= 1;
    }

#pragma unroll
    for (int q = 0; q < PER_THREAD; q++)
        if (c + q * THREADS < FEATURES)
#pragma unroll
            for (int r = 0; r < KEPT; r++) own.sums[r * FEATURES + c + q * THREADS] = sums[q][r];
    if (VALUE)
        for (int distance = 16; distance; distance /= 2) value += __shfl_down_sync(~0u, value, distance);
    if (c == 0) values[group] = value;  // rows are the first warp's alone
    __syncthreads();
    double *totals_here = partial + (long long)blockIdx.x * (1 + CELLS);
    for (int e = threadIdx.x; e < CELLS; e += blockDim.x) {
        double total = 0.0;
        for (int other = 0; other < GROUPS; other++)
            total += ((double *)(shared + other * GROUP_BYTES + STAGES * TILE_BYTES))[e];
        totals_here[1 + e] = total;
    }
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (int other = 0; other < GROUPS; other++) total += values[other];
        totals_here[0] = total;
    }
}
