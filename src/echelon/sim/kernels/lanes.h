// Macros and functions that the kernels of smooth dynamics share.
//
// A kernel runs one warp of 32 threads, the lanes, per world. The same text runs on the CPU, where Warp's CPU blocks take
// the place of a warp. Names in capitals (NBODY, NV, FREE, ...) are numbers that Python puts in front of the text.

// A world's row of a Data field, and of a Model field: OWN_x is 1 if worlds have values of their own, else they share one.
#define ROW_OF(type, x) ((type*)((char*)x.data + (size_t)world * x.strides[0]))
#define ROW(x) ROW_OF(float, x)
#define MODEL(x) (OWN_##x ? (float*)((char*)m.x.data + (size_t)(world % m.x.shape[0]) * m.x.strides[0]) : (float*)m.x.data)
// Do something for each of n things, a lane each.
#define FOR_EACH(i, n) \
    for (int turn = 0; turn < ((n) + 31) / 32; ++turn) \
        if (const int i = 32 * turn + lane; i < (n))
// Do something for each dof of this lane, dof `lane` and with COLUMNS = 2 dof 32 + `lane` too; one may be NV or more.
#define EACH_DOF(c, dof) \
    UNROLL \
    for (int c = 0; c < COLUMNS; ++c) \
        if (const int dof = 32 * c + lane; true)
// Copy numbers from shared memory to a world's row, neighbouring lanes to neighbouring addresses.
#define WRITE(field, source, count) FOR_EACH(i, count) ROW(field)[i] = (source)[i];

#if defined(__CUDA_ARCH__)
#define SHARED __shared__ __align__(16)
#define SYNC() __syncwarp()
#define UNROLL _Pragma("unroll")
    auto from_lane = [](float v, int source) { return __shfl_sync(0xffffffffu, v, source); };
    auto across = [](float v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); };
    auto ballot = [](bool p) { return __ballot_sync(0xffffffffu, p); };
    auto lowest = [](unsigned bits) { return __ffs(bits) - 1; };
    auto count_bits = [](unsigned bits) { return __popc(bits); };
#else
#define SHARED static
#define SYNC() WP_TILE_SYNC()
#define UNROLL
    static float exchanged[32];
    auto from_lane = [&](float v, int source) {
        exchanged[lane] = v;
        SYNC();
        const float result = exchanged[source];
        SYNC();
        return result;
    };
    auto across = [&](float v, int mask) { return from_lane(v, lane ^ mask); };
    auto ballot = [&](bool p) {
        exchanged[lane] = p ? 1.0f : 0.0f;
        SYNC();
        unsigned bits = 0;
        for (int i = 0; i < 32; ++i) bits |= (exchanged[i] != 0.0f ? 1u : 0u) << i;
        SYNC();
        return bits;
    };
    auto lowest = [](unsigned bits) { int i = 0; while (!((bits >> i) & 1u)) ++i; return i; };
    auto count_bits = [](unsigned bits) { int n = 0; for (; bits; bits &= bits - 1u) ++n; return n; };
#endif
    auto sum = [&](float v) {  // over all lanes, which all get it
        UNROLL
        for (int mask = 16; mask > 0; mask /= 2) v += across(v, mask);
        return v;
    };
    auto most = [](float a, float b) { return a > b ? a : b; };


    using namespace wp;  // vec3, mat33, spatial_vector, dot, cross, ...
    struct alignas(16) Quat { float w, x, y, z; };
    auto load3 = [](const float* a) { return vec3(a[0], a[1], a[2]); };
    auto load4 = [](const float* a) { return Quat{a[0], a[1], a[2], a[3]}; };
    auto load6 = [](const float* a) { return spatial_vector(vec3(a[0], a[1], a[2]), vec3(a[3], a[4], a[5])); };
    auto store3 = [](float* a, const vec3& v) { a[0] = v[0]; a[1] = v[1]; a[2] = v[2]; };
    auto store4 = [](float* a, const Quat& q) { a[0] = q.w; a[1] = q.x; a[2] = q.y; a[3] = q.z; };
    auto quats = [](const float* a) { return (const Quat*)a; };  // a row of quaternions, 16 bytes at a time
    auto store6 = [](float* a, const spatial_vector& v) { UNROLL for (int i = 0; i < 6; ++i) a[i] = v[i]; };

    auto rotate = [](const Quat& q, const vec3& v) {
        const vec3 u(q.x, q.y, q.z);
        return 2.0f * dot(u, v) * u + (q.w * q.w - dot(u, u)) * v + 2.0f * q.w * cross(u, v);
    };
    auto multiply = [](const Quat& a, const Quat& b) {
        return Quat{a.w * b.w - a.x * b.x - a.y * b.y - a.z * b.z, a.w * b.x + a.x * b.w + a.y * b.z - a.z * b.y,
                    a.w * b.y - a.x * b.z + a.y * b.w + a.z * b.x, a.w * b.z + a.x * b.y - a.y * b.x + a.z * b.w};
    };
    auto normalise = [](const Quat& q) {
        const float length = sqrtf(q.w * q.w + q.x * q.x + q.y * q.y + q.z * q.z);
        if (length == 0.0f) return Quat{0.0f, 0.0f, 0.0f, 1.0f};
        const float scale = 1.0f / length;
        return Quat{q.w * scale, q.x * scale, q.y * scale, q.z * scale};
    };
    // The product of unit quaternions back to unit length: a Newton step of the inverse square root, which is near 1.
    auto renormalise = [](const Quat& q) {
        const float scale = 1.5f - 0.5f * (q.w * q.w + q.x * q.x + q.y * q.y + q.z * q.z);
        return Quat{q.w * scale, q.x * scale, q.y * scale, q.z * scale};
    };
    auto axis_angle = [](const vec3& axis, float angle) {
        float s, c;
#if defined(__CUDA_ARCH__)
        sincosf(0.5f * angle, &s, &c);
#else
        s = sinf(0.5f * angle);
        c = cosf(0.5f * angle);
#endif
        return Quat{c, axis[0] * s, axis[1] * s, axis[2] * s};
    };
    auto matrix = [](const Quat& q, float* r) {
        const float ww = q.w * q.w, wx = q.w * q.x, wy = q.w * q.y, wz = q.w * q.z, xx = q.x * q.x;
        const float xy = q.x * q.y, xz = q.x * q.z, yy = q.y * q.y, yz = q.y * q.z, zz = q.z * q.z;
        r[0] = ww + xx - yy - zz; r[1] = 2.0f * (xy - wz); r[2] = 2.0f * (xz + wy);
        r[3] = 2.0f * (xy + wz); r[4] = ww - xx + yy - zz; r[5] = 2.0f * (yz - wx);
        r[6] = 2.0f * (xz - wy); r[7] = 2.0f * (yz + wx); r[8] = ww - xx - yy + zz;
    };

    // Sum over groups of `size` neighbouring lanes, a power of two.
#if defined(__CUDA_ARCH__)
    auto sum_group = [](float x, int size) {
        for (int far = size / 2; far > 0; far /= 2) x += __shfl_xor_sync(0xffffffffu, x, far);
        return x;
    };
#else
    static float exchange[32];
    auto sum_group = [&](float x, int size) {
        for (int far = size / 2; far > 0; far /= 2) {
            exchange[lane] = x;
            SYNC();
            x += exchange[lane ^ far];
            SYNC();
        }
        return x;
    };
#endif
